"""Which pods that stand ready go: those in somebody's way, and those that are too many."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.capacity import ReadyPods
from gpulease.policy.model import Device
from gpulease.providers.kubernetes.warm.manifest import Ready, surplus


def pod(number, gpu_class="a", node="n1", *, ready=True):
    return Ready(f"uid-{number}", gpu_class, "r", node, ready, f"2026-01-01T00:00:{number:02}Z")


def devices(number, node="n1"):
    return [Device(f"{node}/r/{n}", "cards", node=node) for n in range(number)]


def test_what_nobody_needs_stays():
    assert not surplus([pod(1), pod(2, "b")], ReadyPods({"a": 1, "b": 1}), devices(2))


def test_of_too_many_the_least_ready_go_first():
    pods = [pod(1), pod(2, ready=False), pod(3, node="", ready=False)]
    assert surplus(pods, ReadyPods({"a": 2}), devices(4)) == {"uid-3"}
    assert surplus(pods, ReadyPods({"a": 1}), devices(4)) == {"uid-2", "uid-3"}


def test_a_pod_waits_for_the_lease_of_its_class_that_was_granted_its_device():
    granted = {"n1/r/0": ("lease", "a")}
    assert not surplus([pod(1)], ReadyPods({"a": 0}, granted), devices(1))


def test_a_pod_goes_where_another_class_was_granted_its_device():
    granted = {"n1/r/0": ("lease", "b")}
    assert surplus([pod(1)], ReadyPods({"a": 1}, granted), devices(1)) == {"uid-1"}
    # There is another one free on the node: nobody is in anybody's way.
    assert not surplus([pod(1)], ReadyPods({"a": 1}, granted), devices(2))


def test_a_pod_goes_that_cannot_serve_the_lease_of_its_own_class():
    granted = {"n1/r/0": ("lease", "a")}
    assert surplus([pod(1)], ReadyPods({"a": 1}, granted), devices(1), {"lease"}) == {"uid-1"}


NODES, CLASSES = ("n1", "n2"), ("a", "b")


@given(st.data())
def test_who_was_granted_a_device_finds_it_free_or_a_pod_of_its_own(data):
    """On each node there is room for all that was granted, be it on a pod of the class; no class
    keeps more than it should and what is about to be taken; and no pod goes without one of both.
    """
    there = [each for node in NODES for each in devices(data.draw(st.integers(0, 4)), node)]
    granted = {
        each.uuid: (f"lease-{n}", data.draw(st.sampled_from(CLASSES)))
        for n, each in enumerate(there)
        if data.draw(st.booleans())
    }
    number = {node: sum(each.node == node for each in there) for node in NODES}
    pods = []
    for node in NODES:
        for _ in range(data.draw(st.integers(0, number[node]))):
            pods.append(pod(len(pods), data.draw(st.sampled_from(CLASSES)), node,
                            ready=data.draw(st.booleans())))  # fmt: skip
    standing = ReadyPods({name: data.draw(st.integers(0, 4)) for name in CLASSES}, granted)
    gone = surplus(pods, standing, there)
    left = [each for each in pods if each.uid not in gone]
    for node in NODES:
        coming = [name for uuid, (_, name) in granted.items() if uuid.startswith(node)]
        cold = 0
        for name in CLASSES:
            here = sum(each.node == node and each.gpu_class == name for each in left)
            cold += max(0, coming.count(name) - here)
        stay = sum(each.node == node for each in left)
        assert cold + stay <= number[node]
    for name in CLASSES:
        kept = sum(each.gpu_class == name for each in left)
        coming = sum(each == name for _, each in granted.values())
        assert kept <= standing.pods[name] + coming
    if not granted and all(standing.pods[name] >= sum(x.gpu_class == name for x in pods)
                           for name in CLASSES):  # fmt: skip
        assert not gone


def test_what_does_not_work_is_not_free_and_neither_is_a_node_that_leaves():
    granted = {"n1/r/0": ("lease", "b")}
    broken = [devices(1)[0], *(replace(each, healthy=False) for each in devices(3)[1:])]
    assert surplus([pod(1)], ReadyPods({"a": 1}, granted), broken) == {"uid-1"}
    leaving = [replace(each, leaving=True) for each in devices(2)]
    assert surplus([pod(1)], ReadyPods({"a": 1}), leaving) == {"uid-1"}
