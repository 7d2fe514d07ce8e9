"""The network policy between the pods of one lease: whom it lets talk, and when one may be made."""

import pytest

from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import ConflictError
from gpulease.providers.kubernetes.manifests.pod_network import End, PodNetwork, between, lets
from tests.helm_values import shipped
from tests.providers.kubernetes.server_pods import lease

SHIPPED = shipped.load("leases/network.yaml")


def pod(name="l1", attempt="2", **more):
    marks = {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: "hub-a",
        labels.LEASE: name,
        labels.ATTEMPT: attempt,
    }
    metadata = {"name": "first", "namespace": shipped.SERVERS, "uid": "u1"}
    return {"metadata": {**metadata, "labels": marks | more}}


def end(made, namespace=shipped.SERVERS):
    return End(namespace, made["metadata"]["labels"])


def talk(policies, one, other):
    """Whether one end reaches the other: out of it and into the other."""
    port = (29500, "TCP")
    return lets(policies, one, "Egress", other, port) and lets(
        policies, other, "Ingress", one, port
    )


def test_the_pods_of_one_attempt_talk_and_nobody_else_joins_them():
    first = pod(**{labels.RANK: "0"})
    policies = [*SHIPPED, between(first)]
    here, there = end(first), end(pod(**{labels.RANK: "1"}))
    assert not talk(SHIPPED, here, there), "it is needed"
    assert talk(policies, here, there)
    assert talk(policies, there, here)
    for stranger in (
        end(pod(name="l2")),
        end(pod(attempt="1")),
        end(pod(**{labels.INSTANCE: "hub-b"})),
        end(pod(), namespace="elsewhere"),
        End(shipped.SERVERS, {"component": "singleuser-server"}),
    ):
        assert not talk(policies, here, stranger)
        assert not talk(policies, stranger, here)


def test_it_goes_with_the_first_pod_and_the_hub_does_not_copy_it():
    made = between(pod())
    assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == ["u1"]
    assert labels.COMPONENT not in made["metadata"]["labels"]
    assert made["metadata"]["labels"][labels.NAME] == labels.APP, "uninstall finds it"


class Client:
    """An API server that gives the right in some namespaces."""

    def __init__(self, *allowed):
        self.allowed, self.asked, self.made = allowed, [], []

    async def get(self, resource, name, namespace=""):
        return pod()

    async def create(self, resource, body, namespace=""):
        if resource.plural != "selfsubjectaccessreviews":
            if self.made:
                raise ConflictError("it is there")
            self.made.append(body)
            return body
        where = body["spec"]["resourceAttributes"].get("namespace", "")
        self.asked.append(where)
        return {"status": {"allowed": where in self.allowed}}


@pytest.mark.parametrize(
    ("namespaces", "allowed", "possible"),
    [
        (["a"], ["a"], True),
        (["a", "b"], ["a"], False),
        (["a"], [], False),
        (["a", "u-*"], ["a"], False),
        (["u-*"], [""], True),
    ],
)
async def test_it_may_be_made_where_the_right_is_given_in_every_namespace(
    namespaces, allowed, possible
):
    network = PodNetwork(Client(*allowed), namespaces)
    assert not network.possible
    await network.look()
    assert network.possible is possible


async def test_one_that_is_there_is_taken():
    client = Client()
    network = PodNetwork(client, ["a"])
    for _ in range(2):
        await network.open(lease(), "a")
    assert len(client.made) == 1
