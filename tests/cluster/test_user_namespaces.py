"""A namespace for each user: leases run there, and neither hub nor service may do more than that.

The hub makes the namespace and copies what leases need into it; the lease service's rights begin
with that copy.
"""

import asyncio
import copy
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpulease.commands.doctor import look
from gpulease.protocol import labels
from testcluster import rights
from testcluster.api import Api, ApiError, Object
from testcluster.cluster import Cluster
from testcluster.pods import delete_namespace, new_namespace, pod
from testcluster.site import shipped
from testcluster.site.people import LONG, at_work
from testcluster.site.site import Site, running_site
from tests.cluster.conftest import POLICY
from tests.helpers import wait_for, wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

USER = f"ada{uuid.uuid4().hex[:6]}"
NAMESPACE = f"own-{USER}"
HUB = f"""
c.KubeSpawner.enable_user_namespaces = True
c.KubeSpawner.user_namespace_template = "own-{{username}}"
c.GPULeaseSpawner.gpulease_namespace = "{shipped.HUB_NAMESPACE}"
"""
SERVICE = f"system:serviceaccount:{shipped.OWN_NAMESPACE}:gpulease"
HUB_ACCOUNT = f"system:serviceaccount:{shipped.HUB_NAMESPACE}:hub"


@pytest.fixture(scope="module")
def apart(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose servers run in a namespace for each user."""
    directory = tmp_path_factory.mktemp("apart")
    shipped.apply(cluster.api)
    shipped.apply(cluster.api, shipped.USER_NAMESPACES)
    changes: dict[str, Any] = {"namespaces": ("own-*",), "extra_hub": HUB, "mount_homes": False}
    try:
        with running_site(cluster, directory, POLICY, **changes) as running:
            yield running
    finally:
        if cluster.api.find(f"/api/v1/namespaces/{NAMESPACE}"):
            delete_namespace(cluster.api, NAMESPACE)
        shipped.remove(cluster.api, shipped.USER_NAMESPACES)


@pytest.fixture(scope="module")
def recorded(apart: Site) -> list[Object]:
    """What hub and service asked of the API server while a lease ran in a user's namespace."""
    before = len(apart.cluster.audited())
    asyncio.run(_work(apart))
    return apart.cluster.audited()[before:]


async def _work(site: Site) -> None:
    async with at_work(site, USER) as ada:
        await ada.run("numbers = list(range(10))")
        cell = await ada.run(
            "%%gpu\ntotal = sum(numbers)\nimport os; print(os.environ['HOSTNAME'])"
        )
        (made,) = site.lease_pods()
        assert made["metadata"]["namespace"] == NAMESPACE
        assert made["metadata"]["name"] in cell.text
        await ada.watch.wait_for("ended", seconds=LONG)
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
        assert "total 45" in (await ada.run("print('total', total)")).text


def test_a_lease_runs_in_the_users_namespace(recorded: list[Object], apart: Site) -> None:
    """`recorded` ran it; here is what the hub put into the namespace."""
    api = apart.cluster.api
    found = api.get(f"/api/v1/namespaces/{NAMESPACE}")["metadata"]["labels"]
    assert found[labels.INSTANCE] == "gpulease"
    source = f"namespaces/{shipped.HUB_NAMESPACE}"
    for path in (
        "networking.k8s.io/v1/{}/networkpolicies",
        "rbac.authorization.k8s.io/v1/{}/rolebindings",
    ):
        selector = {"labelSelector": "app.kubernetes.io/component=lease"}
        theirs = api.items(f"/apis/{path.format(source)}", **selector)
        copies = api.items(f"/apis/{path.format(f'namespaces/{NAMESPACE}')}", **selector)
        essence = ("spec", "roleRef", "subjects")
        assert [[each.get(key) for key in essence] for each in copies] == [
            [each.get(key) for key in essence] for each in theirs
        ]
        assert copies
    assert recorded


async def test_the_doctor_finds_it_all_right(recorded: list[Object], apart: Site) -> None:
    """With another server that runs; its own namespace was made by the hub."""
    async with at_work(apart, USER):
        found = await look(str(apart.settings.directory / "service.py"), {})
    # The agent is a process here, no pod.
    wrong = [each for each in found if each.state == "wrong" and each.check != "agents"]
    assert wrong == []
    assert {each.check for each in found if each.state == "ok"} >= {
        *("rights", "least_rights", "lease_pod", "admission", "servers", "network", "namespaces")
    }
    assert [each for each in found if NAMESPACE in each.sentence]
    assert recorded


def test_the_service_asks_for_nothing_that_it_may_not(recorded: list[Object]) -> None:
    refused = [
        each
        for each in recorded
        if each["user"]["username"] == SERVICE and each["responseStatus"].get("code") == 403
    ]
    assert refused == []


def test_the_service_may_create_pods_only_where_the_hub_let_it(apart: Site, recorded: Any) -> None:
    service = apart.cluster.api.as_account(shipped.OWN_NAMESPACE, "gpulease")
    with pytest.raises(ApiError, match='cannot create resource "pods"'):
        service.create(pod("default", "x"), dryRun="All")
    with pytest.raises(ApiError, match="labels: a pod of the lease service"):
        service.create(pod(NAMESPACE, "x"), dryRun="All")


# --- the hub's rights: all used, none too few, and kept inside labelled namespaces


def hub_roles() -> list[rights.Given]:
    return rights.given(shipped.documents(shipped.USER_NAMESPACES), "hub")


#: What a spawn does not do: a claim is made with homes, removed with its user.
ELSEWHERE = {("", "persistentvolumeclaims", verb) for verb in ("get", "create", "delete")}


def test_every_right_of_the_hub_is_used(recorded: list[Object]) -> None:
    used = {
        (about.get("apiGroup", ""), about["resource"], each["verb"])
        for each in recorded
        if each["user"]["username"] == HUB_ACCOUNT
        and (about := each.get("objectRef"))
        and each["annotations"].get("authorization.k8s.io/decision") == "allow"
    }
    granted = {
        (grant.group, grant.resource, grant.verb) for each in hub_roles() for grant in each.grants()
    }
    bind = (rights.RBAC, "clusterroles", "bind")  # asked within the creation of a binding
    update = ("networking.k8s.io", "networkpolicies", "update")  # from the second server on
    assert granted - used == ELSEWHERE | {bind, update}


@pytest.mark.parametrize(
    "lost",
    [
        "clusterroles",
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in ("serviceaccounts", "networkpolicies", "rolebindings")
        ),
    ],
)
def test_without_one_right_the_copy_fails(
    cluster: Cluster, apart: Site, recorded: list[Object], lost: str
) -> None:
    name = {"clusterroles": "rolebindings"}.get(lost, lost)
    event = next(
        each
        for each in recorded
        if each["user"]["username"] == HUB_ACCOUNT
        and each["verb"] == "create"
        and each["objectRef"]["resource"] == name
    )
    rest = [replace(each, rules=_without(each.rules, lost)) for each in hub_roles()]
    with rights.account_of(cluster.api, f"hub-{uuid.uuid4().hex[:6]}", hub_roles()) as whole:
        wait_for(lambda: not rights.lacks(whole, event), 90, "the rights are known")
    with rights.account_of(cluster.api, f"hub-{uuid.uuid4().hex[:6]}", rest) as less:
        assert rights.lacks(less, event)


def _without(rules: list[Object], resource: str) -> list[Object]:
    return [each for each in rules if resource not in each["resources"]]


def _pod(name: str, namespace: str) -> Object:
    return pod(namespace, name)


def _account(name: str, namespace: str, **more: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **more}


def _binding(namespace: str, role: str = "gpulease-servers", subject: str = "gpulease") -> Object:
    subject_of = {"kind": "ServiceAccount", "name": subject, "namespace": shipped.OWN_NAMESPACE}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "x", "namespace": namespace},
        "roleRef": {"apiGroup": rights.RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject_of],
    }


def _namespace(**marks: str) -> Object:
    metadata = {"name": f"x{uuid.uuid4().hex[:6]}", "labels": marks}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _network(namespace: str, **marks: str) -> Object:
    metadata = {"name": "x", "namespace": namespace, "labels": marks}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {"podSelector": {}},
    }


BOUNDS: list[tuple[str, Callable[[str], Object]]] = [
    ("namespace: ", lambda _: _namespace()),
    ("label: ", lambda _: _pod("x", "default")),
    (
        "label: ",
        lambda _: _account("gpulease-lease", "kube-system", automountServiceAccountToken=False),
    ),
    ("account: ", lambda there: _account("other", there, automountServiceAccountToken=False)),
    ("account: ", lambda there: _account("gpulease-lease", there)),
    ("network: ", lambda there: _network(there)),
    ("binding: ", lambda there: _binding(there, subject="gpulease-agent")),
    (
        "attempting to grant|cannot bind|not currently held",
        lambda there: _binding(there, role="cluster-admin"),
    ),
]


@pytest.mark.parametrize(("words", "made"), BOUNDS)
def test_the_hub_writes_only_what_it_must_and_only_in_labelled_namespaces(
    apart: Site, labelled: str, words: str, made: Callable[[str], Object]
) -> None:
    hub = apart.cluster.api.as_account(shipped.HUB_NAMESPACE, "hub")

    def answer() -> str:
        """Return what is said; a policy counts some time after it was made."""
        try:
            hub.create(copy.deepcopy(made(labelled)), dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    said = wait_for(answer, 120, "the hub is refused")
    assert any(each in said for each in words.split("|")), said


def test_what_it_must_write_is_taken(apart: Site, labelled: str) -> None:
    hub = apart.cluster.api.as_account(shipped.HUB_NAMESPACE, "hub")
    marks = {"app.kubernetes.io/name": "gpulease"}
    hub.create(_namespace(**{labels.INSTANCE: "gpulease"}), dryRun="All")
    hub.create(
        _account("gpulease-lease", labelled, automountServiceAccountToken=False), dryRun="All"
    )
    hub.create(_network(labelled, **marks), dryRun="All")
    hub.create(_binding(labelled), dryRun="All")
    hub.create(_pod("x", labelled), dryRun="All")


def test_the_hub_removes_no_network_policy(apart: Site, labelled: str) -> None:
    api: Api = apart.cluster.api
    api.create(_network(labelled, **{"app.kubernetes.io/name": "gpulease"}))
    path = f"/apis/networking.k8s.io/v1/namespaces/{labelled}/networkpolicies/x"
    with pytest.raises(ApiError):
        api.as_account(shipped.HUB_NAMESPACE, "hub").delete(path)
    assert api.find(path)


@pytest.fixture
def labelled(cluster: Cluster) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    new_namespace(cluster.api, name, {labels.INSTANCE: "test"})
    yield name
    delete_namespace(cluster.api, name)
