"""Lease pods that wait for a node to be added, and the nodes that come."""

from dataclasses import replace

from gpulease.policy.model import Device
from gpulease.policy.pods import PodAsk
from gpulease.providers.kubernetes.manifests import new_nodes
from gpulease.providers.kubernetes.manifests.new_nodes import avoided, landings, there
from gpulease.providers.kubernetes.observed.pods import Part


def node(name, hostname="", **marks):
    hosts = {"kubernetes.io/hostname": hostname} if hostname else {}
    return {"metadata": {"name": name, "labels": {**hosts, **marks}}}


def slots(name, count, **changed):
    base = Device("", "cards", node=name)
    return [replace(base, uuid=f"{name}/gpu/{n}", **changed) for n in range(count)]


def pod(*names):
    terms = [{"matchExpressions": term} for term in new_nodes.terms(names)]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"spec": {"affinity": {"nodeAffinity": needed}}}


def test_a_pod_keeps_off_the_nodes_that_serve_its_class_by_their_hostname():
    ask = PodAsk(node_selector=(("type", "gpu"),))
    nodes = [
        node("b", "host-b", type="gpu"),
        node("a", type="gpu"),
        node("c", type="cpu"),
        node("d", type="gpu", **{"gpulease/instance": "another"}),
    ]
    found = there(nodes, ask, "hub")
    assert found == ("a", "host-b")
    assert avoided(pod(*found)) == {"a", "host-b"}
    assert avoided(pod()) == avoided({"spec": {}}) == frozenset()


def test_what_a_new_node_has_is_for_who_waited_for_it_first():
    waiting = {
        Part("l1", 1): ("t4", 1, frozenset({"old"})),
        Part("l2", 1): ("t4", 2, frozenset({"old"})),
        Part("l3", 1): ("t4", 1, frozenset({"old"})),
    }
    devices = [*slots("old", 4), *slots("new", 3)]
    nodes = [node("old"), node("new")]
    found = landings(waiting, devices, nodes)
    assert found == {Part("l1", 1): ("new/gpu/0",), Part("l2", 1): ("new/gpu/1", "new/gpu/2")}
    # Shown as theirs at the next look, they stay so.
    shown = [
        replace(each, occupied_by=next((k[0] for k, v in found.items() if each.uuid in v), None))
        for each in devices
    ]
    assert landings(waiting, shown, nodes) == found
    assert landings({}, devices, nodes) == {}


def test_only_what_can_be_had_is_theirs():
    waiting = {Part("l1", 1): ("t4", 1, frozenset())}
    bad = [
        *slots("a", 1, occupied_by="foreign"),
        *slots("b", 1, healthy=False),
        *slots("c", 1, leaving=True),
        *slots("d", 1, serves=("other",)),
    ]
    nodes = [node(name) for name in "abcde"]
    assert landings(waiting, bad, nodes) == {}
    assert landings(waiting, [*bad, *slots("e", 1)], nodes) == {Part("l1", 1): ("e/gpu/0",)}


def test_the_autoscalers_last_word_is_told():
    events = [
        {"reason": "TriggeredScaleUp", "message": "0->1", "lastTimestamp": "2026-03-02T14:00:00Z"},
        {"reason": "NotTriggerScaleUp", "message": "max", "lastTimestamp": "2026-03-02T14:05:00Z"},
        {"reason": "Pulled", "message": "x", "lastTimestamp": "2026-03-02T14:09:00Z"},
    ]
    assert new_nodes.autoscaler(events) == "NotTriggerScaleUp: max"
    assert new_nodes.autoscaler(events[2:]) == ""
