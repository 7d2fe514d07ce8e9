import pytest

from gpulease.policy.pods import AskKind, PodAsk, Toleration
from gpulease.providers.kubernetes.pod_resources.volumes import KnownNode
from gpulease.providers.kubernetes.starts.starts import Candidates, place
from tests.providers.kubernetes.objects import INSTANCE, node

TAINT = {"key": "site/mine", "effect": "NoSchedule"}


def names(nodes, ask=None, granted=""):
    return [each.name for each in Candidates(INSTANCE).of(nodes, ask or PodAsk(), granted)]


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


def test_a_node_is_looked_at_again_once_it_has_changed():
    some, nodes = Candidates(INSTANCE), [node("n1"), node("n2")]

    def found(ask=None):
        return [each.name for each in some.of(nodes, ask or PodAsk(), "")]

    assert found() == ["n1", "n2"]
    nodes[0] = node("n1", taints=[TAINT])
    nodes.append(node("n3"))
    assert found() == ["n2", "n3"]
    assert found(PodAsk(tolerations=(Toleration("site/mine"),))) == ["n1", "n2", "n3"]
    del nodes[1]
    assert found() == ["n3"]


def test_what_did_not_change_is_not_looked_at_again():
    class Counted(dict):
        read = 0

        def get(self, *args):
            Counted.read += 1
            return super().get(*args)

    some, nodes = Candidates(INSTANCE), [Counted(node(f"n{k}")) for k in range(50)]
    first = some.of(nodes, PodAsk(), "")
    looked, Counted.read = Counted.read, 0
    assert looked
    assert some.of(nodes, PodAsk(), "") == first
    assert not Counted.read


def test_the_asks_that_people_narrow_are_forgotten_again():
    some = Candidates(INSTANCE)
    for number in range(500):
        some.of([node("n1")], PodAsk(node_selector=(("rack", str(number)),)), "")
    assert len(some._known) <= 64
