import pytest

from gpulease.policy.pods import AskKind, PodAsk, Toleration
from gpulease.providers.kubernetes.candidates import candidates, place
from gpulease.providers.kubernetes.volumes import KnownNode
from tests.providers.kubernetes.objects import INSTANCE, node

TAINT = {"key": "site/mine", "effect": "NoSchedule"}


def names(nodes, ask=None, granted=""):
    return [each.name for each in candidates(nodes, ask or PodAsk(), granted, INSTANCE)]


@pytest.mark.parametrize(
    "other",
    [
        node("n2", 0),  # a node of servers: nothing marks it, it just has no GPU
        node("n2", resource="amd.com/gpu"),
        node("n2", 4, ready=0),
        node("n2", state="Unknown"),
        node("n2", taints=[TAINT]),
        node("n2", marks={"gpulease/instance": "another"}),
        node("n2", marks={"nvidia.com/gpu.sharing-strategy": "mps"}),
    ],
)
def test_a_node_that_could_not_run_the_pod_is_none(other):
    assert names([node("n1"), other]) == ["n1"]


def test_a_tainted_node_is_one_for_a_class_that_bears_the_taint():
    ask = PodAsk(tolerations=(Toleration("site/mine"),))
    assert names([node("n2", taints=[TAINT])], ask) == ["n2"]


def test_of_a_claim_only_the_granted_node_is_known():
    assert names([node("n1", 0), node("n2", 0)], PodAsk(AskKind.DRA), "n2") == ["n2"]


def test_a_place_is_the_nodes_name_and_labels():
    assert place(node("n1")) == KnownNode("n1", {"kubernetes.io/hostname": "n1"})
