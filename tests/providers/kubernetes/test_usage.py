"""Whose use a device's use is: told apart, a pod's own; in doubt, nobody's protection."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.gpus.base import Sample, Tenancy
from gpulease.policy.idleness import USE
from gpulease.policy.model import EvidenceLevel
from gpulease.providers.kubernetes.capacity.usage import AgentUsage, LeasePod

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
PROCESS, DEVICE, CELLS = EvidenceLevel.PROCESS, EvidenceLevel.DEVICE, EvidenceLevel.CELLS
POD = LeasePod("uid-1", "hub", "lease-1", "n1", ("n1/nvidia.com/gpu/0",))
OTHER = LeasePod("uid-2", "hub", "lease-2", "n1", ("n1/nvidia.com/gpu/1",))


def held(device: str, pod: str = "lease-1", **more: Any) -> dict[str, Any]:
    found = {"namespace": "hub", "pod": pod, "container": "c", "resource": "nvidia.com/gpu"}
    return {**found, "device": device, "driver": "", "pool": "", **more}


def device(uuid: str = "G", level: EvidenceLevel = PROCESS, **more: Any) -> dict[str, Any]:
    first = {"uuid": uuid, "parent": "", "index": 0, "name": "", "memory": 0, "level": level.value}
    return {**first, "offered": True, "incidents": [], **more}


def second(use: float | None, uuid: str = "G", ago: float = 1, **more: Any) -> dict[str, Any]:
    at = (NOW - timedelta(seconds=ago)).isoformat()
    gap = "" if use is not None else "gpu_is_lost"
    return {"at": at, "device": uuid, "use": use, "gap": gap, "memory": 5, "pods": {}, **more}


def batch(
    *seconds: dict[str, Any],
    holders: list[dict[str, Any]] | None = None,
    devices: list[dict[str, Any]] | None = None,
    ago: float = 0,
    problem: str = "",
) -> dict[str, Any]:
    return {
        "sequence": 1,
        "at": (NOW - timedelta(seconds=ago)).isoformat(),
        "devices": [device()] if devices is None else devices,
        "holders": holders,
        "seconds": list(seconds),
        "problem": problem,
    }


def told(*pods: LeasePod, now: datetime = NOW, claims: Any = None, **word: Any) -> list[Sample]:
    usage = AgentUsage()
    usage.hear("n1", batch(*word.pop("seconds"), **word), NOW)
    return usage.samples(pods or (POD,), now, claims)


def one(**word: Any) -> Sample:
    """Return what is told of the first lease; the second one is there, too."""
    found = told(POD, OTHER, **word)
    return next(each for each in found if each.uuid == POD.slots[0])


ALONE = [held("G")]
SHARED = [held("G::0"), held("G::1", "lease-2")]


@pytest.mark.parametrize(
    ("why", "level", "holders", "seen", "expected"),
    [
        ("alone, told apart", PROCESS, ALONE, second(0.5, pods={"uid-1": 0.2}), (0.5, PROCESS)),
        ("alone, a burst between", PROCESS, ALONE, second(0.5), (0.5, PROCESS)),
        ("alone, another's", PROCESS, ALONE, second(0.5, pods={"uid-9": 0.5}), (0.5, CELLS)),
        ("alone, the node's", PROCESS, ALONE, second(0.5, others=0.5), (0.5, CELLS)),
        ("alone, a look by the node", PROCESS, ALONE, second(0.5, others=0.01), (0.5, PROCESS)),
        (
            "alone, its own beside the node's",
            PROCESS,
            ALONE,
            second(0.9, pods={"uid-1": 0.4}, others=0.5),
            (0.4, PROCESS),
        ),
        ("alone, ended", PROCESS, ALONE, second(0.5, others=0.1, unplaced=0.4), (0.5, PROCESS)),
        ("alone, device only", DEVICE, ALONE, second(0.5), (0.5, DEVICE)),
        ("alone, no utilisation", CELLS, ALONE, second(0.0), (0.0, CELLS)),
        ("shared, its own", PROCESS, SHARED, second(0.9, pods={"uid-1": 0.4}), (0.4, PROCESS)),
        ("shared, the other's", PROCESS, SHARED, second(0.9, pods={"uid-2": 0.9}), (0.0, PROCESS)),
        ("shared, by a server", PROCESS, SHARED, second(0.9, pods={"uid-9": 0.9}), (0.9, CELLS)),
        ("shared, by the node", PROCESS, SHARED, second(0.9, others=0.9), (0.9, CELLS)),
        ("shared, unused", PROCESS, SHARED, second(0.0), (0.0, PROCESS)),
        ("shared, nobody seen", PROCESS, SHARED, second(0.9), (0.9, CELLS)),
        ("shared, unplaced", PROCESS, SHARED, second(0.9, unplaced=0.9), (0.9, CELLS)),
        (
            "shared, its own beside an unplaced one",
            PROCESS,
            SHARED,
            second(0.9, pods={"uid-1": 0.4}, unplaced=0.5),
            (0.4, PROCESS),
        ),
        ("shared, device only", DEVICE, SHARED, second(0.9), (0.9, CELLS)),
        ("shared, device only, unused", DEVICE, SHARED, second(0.01), (0.0, DEVICE)),
    ],
)
def test_whose_use_it_is(
    why: str,
    level: EvidenceLevel,
    holders: list[dict[str, Any]],
    seen: dict[str, Any],
    expected: tuple[float, EvidenceLevel],
) -> None:
    found = one(seconds=[seen], holders=holders, devices=[device(level=level)])
    assert (found.uuid, found.utilisation, found.level) == (POD.slots[0], *expected), why


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(EvidenceLevel),
)
def test_what_others_use_on_a_shared_device_protects_nobody(
    use: float, other: float, node: float, unplaced: float, level: EvidenceLevel
) -> None:
    seen = second(use, pods={"uid-2": other}, others=node, unplaced=unplaced)
    found = one(seconds=[seen], holders=SHARED, devices=[device(level=level)])
    assert found.level is CELLS or (found.utilisation or 0.0) <= USE


@given(st.floats(0.04, 1), st.floats(0, 1), st.floats(0, 1))
def test_what_a_pod_was_seen_to_use_always_counts(own: float, other: float, gone: float) -> None:
    for holders in (ALONE, SHARED):
        seen = second(max(own, other), pods={"uid-1": own, "uid-2": other}, unplaced=gone)
        found = one(seconds=[seen], holders=holders)
        assert found.level is PROCESS
        assert (found.utilisation or 0.0) > USE


def test_what_each_holds_of_a_shared_card_is_told_with_what_is_left_of_it() -> None:
    card = [device(memory=100)]
    seen = second(0.0, memory=70, memories={"uid-1": 50, "uid-9": 20})
    for pod, used in ((POD, 50), (OTHER, 0)):
        word = {"seconds": [seen], "holders": SHARED, "devices": card}
        (found,) = [x for x in told(POD, OTHER, **word) if x.uuid == pod.slots[0]]
        assert found.tenancy == Tenancy("n1/G", used, 30)


def test_the_memory_of_a_card_is_its_holders_and_of_a_shared_one_what_each_holds() -> None:
    def told_of(holders: list[dict[str, Any]], **more: Any) -> int | None:
        word = {"seconds": [second(0.0, memory=70, **more)], "holders": holders}
        return one(**word, devices=[device(memory=100)]).memory_used

    assert told_of(ALONE) == 70
    assert told_of(SHARED, memories={"uid-1": 50, "uid-9": 20}) == 50
    assert told_of(SHARED) is None, "nobody can tell them apart"


def test_the_memory_of_two_slots_on_one_card_counts_once() -> None:
    pod = LeasePod("uid-1", "hub", "lease-1", "n1", ("s0", "s1"))
    found = told(
        pod, seconds=[second(0.1, memory=70)], holders=[held("G::0"), held("G::1")],
        devices=[device(memory=100)],
    )  # fmt: skip
    assert [each.memory_used for each in found] == [70, 0]


@pytest.mark.parametrize(
    ("holders", "more"),
    [
        (ALONE, {"memory": 70, "memories": {"uid-1": 50}}),
        (SHARED, {"memory": 70}),
        (SHARED, {"memory": None, "memories": {"uid-1": 50}}),
    ],
)
def test_nothing_is_told_of_a_card_alone_or_that_is_not_known(
    holders: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    word = {"seconds": [second(0.0, **more)], "holders": holders, "devices": [device(memory=100)]}
    assert one(**word).tenancy is None


def test_a_gap_is_a_gap_with_its_reason() -> None:
    found = one(seconds=[second(None)], holders=ALONE)
    assert (found.utilisation, found.gap) == (None, "gpu_is_lost")


def test_each_card_of_a_pod_is_a_slot() -> None:
    pod = LeasePod("uid-1", "hub", "lease-1", "n1", ("s0", "s1"))
    holders = [held("B"), held("A")]
    seconds = [second(0.1, "A"), second(0.2, "B"), second(0.9, "C")]
    devices = [device(each) for each in "ABC"]
    found = told(pod, seconds=seconds, holders=holders, devices=devices)
    assert [(each.uuid, each.utilisation) for each in found] == [("s0", 0.1), ("s1", 0.2)]


def test_a_claims_device_is_found_by_its_slice() -> None:
    holders = [held("gpu-0", resource="", driver="gpu.nvidia.com", pool="n1")]
    claims = {("gpu.nvidia.com", "n1", "gpu-0"): "G"}
    (found,) = told(seconds=[second(0.3)], holders=holders, claims=claims)
    assert found.utilisation == 0.3
    (lost,) = told(seconds=[second(0.3)], holders=holders)
    assert lost.gap == "unknown_device"


def test_a_mig_device_is_its_own() -> None:
    holders = [held("MIG-1"), held("MIG-2", "lease-2")]
    devices = [device("MIG-1", DEVICE, parent="G"), device("MIG-2", DEVICE, parent="G")]
    seconds = [second(0.7, "MIG-1"), second(0.0, "MIG-2")]
    found = told(POD, OTHER, seconds=seconds, holders=holders, devices=devices)
    assert [each.utilisation for each in found] == [0.7, 0.0]


@pytest.mark.parametrize(
    ("why", "word"),
    [
        ("kubelet_silent", {"seconds": [second(0.5)], "holders": None}),
        ("not_listed", {"seconds": [second(0.5)], "holders": []}),
        ("no_devices", {"seconds": [], "holders": [], "devices": [], "problem": "no driver"}),
        (
            "agent_silent",
            {"seconds": [second(0.5)], "holders": ALONE, "now": NOW.replace(minute=1)},
        ),
    ],
)
def test_no_word_is_a_gap(why: str, word: dict[str, Any]) -> None:
    found = one(**word)
    assert (found.uuid, found.utilisation, found.gap) == (POD.slots[0], None, why)


def test_a_node_that_was_never_heard_is_a_gap() -> None:
    assert [each.gap for each in AgentUsage().samples([POD], NOW)] == ["agent_silent"]


def test_between_two_batches_nothing_is_said_and_no_second_is_told_twice() -> None:
    usage = AgentUsage()
    usage.hear("n1", batch(second(0.5), holders=ALONE), NOW)
    assert len(usage.samples([POD], NOW)) == 1
    assert usage.samples([POD], NOW + timedelta(seconds=9)) == []
    assert usage.samples([POD], NOW + timedelta(seconds=11))[0].gap == "agent_silent"
    usage.hear("n1", batch(second(0.1), holders=ALONE), NOW + timedelta(seconds=12))
    assert usage.samples([POD], NOW + timedelta(seconds=12))[0].utilisation == 0.1


def test_an_old_batch_that_comes_late_tells_nothing_of_the_present() -> None:
    usage = AgentUsage()
    usage.hear("n1", batch(second(0.5), holders=ALONE), NOW)
    usage.hear("n1", batch(second(0.9, ago=3000), holders=[], devices=[], ago=3000), NOW)
    assert [each.utilisation for each in usage.samples([POD], NOW)] == [0.5]
    assert usage.reports["n1"].newest["devices"]


def test_nodes_that_left_are_forgotten() -> None:
    usage = AgentUsage()
    usage.hear("n1", batch(), NOW)
    usage.forget(["n2"])
    assert usage.reports == {}


XID = {"kind": "xid", "at": NOW.isoformat(), "until": NOW.isoformat(), "xid": 79}
SICK = device(incidents=[XID])


def faults(*pods: LeasePod, devices: list[dict[str, Any]], holders: list[dict[str, Any]]) -> Any:
    usage = AgentUsage()
    usage.hear("n1", batch(devices=devices, holders=holders), NOW)
    return usage.faults(pods, NOW)


def test_a_pod_on_a_failing_device_loses_its_slot_and_the_others_keep_theirs() -> None:
    devices = [SICK, device("H")]
    found = faults(POD, OTHER, devices=devices, holders=[held("G"), held("H", "lease-2")])
    assert set(found.slots) == {POD.slots[0]}
    assert "Xid 79" in found.slots[POD.slots[0]]
    assert found.nodes == {}, "who holds it keeps others from landing there"


def test_an_admin_reads_which_device_fails_and_until_when() -> None:
    usage = AgentUsage()
    mig = [device("MIG-1", parent="G"), device("MIG-2", parent="G")]
    usage.hear("n1", batch(devices=[SICK, *mig], holders=[]), NOW)
    usage.hear("n2", batch(devices=[device()], holders=[]), NOW)
    (sentence,) = usage.warnings(NOW)
    assert sentence == (
        "n1: GPU G: the driver reported Xid 79, out of service until 12:10 UTC."
        " It fell off the bus: drain and reboot the node."
    )
    assert usage.warnings(NOW + timedelta(seconds=600)) == []


def test_a_failing_device_that_the_kubelet_still_offers_closes_its_node() -> None:
    assert set(faults(devices=[SICK], holders=[]).nodes) == {"n1"}
    assert faults(devices=[{**SICK, "offered": False}], holders=[]).nodes == {}
    assert set(faults(devices=[SICK], holders=[held("G::0")]).nodes) == {"n1"}


def test_mig_devices_fail_with_their_gpu() -> None:
    mig = [device("MIG-1", parent="G"), device("MIG-2", parent="G")]
    found = faults(POD, devices=[SICK, *mig], holders=[held("MIG-1"), held("MIG-2", "x")])
    assert set(found.slots) == {POD.slots[0]}
    assert found.nodes == {}
    assert set(faults(devices=[SICK, *mig], holders=[held("MIG-1")]).nodes) == {"n1"}


def test_an_application_fault_closes_nothing() -> None:
    found = faults(POD, devices=[device(incidents=[{**XID, "xid": 31}])], holders=ALONE)
    assert (found.slots, found.nodes) == ({}, {})


def test_health_names_a_nodes_trouble_and_what_cannot_be_measured() -> None:
    usage = AgentUsage()
    usage.hear("n1", batch(devices=[device(level=CELLS)]), NOW)
    usage.hear("n2", batch(devices=[], problem="unknown: Restart the pod."), NOW)
    gone = {"kind": "xid", "xid": 79, "at": NOW.isoformat(), "until": None}
    usage.hear("n3", batch(devices=[device(incidents=[gone])]), NOW)
    trouble, fault = usage.warnings(NOW)
    assert trouble == "n2: unknown: Restart the pod."
    assert "drain and reboot the node" in fault
    (limit,) = usage.limits()
    assert limit.startswith("n1 (")
    assert "no GPU cell runs" in limit


def test_a_card_of_unknown_size_takes_room_from_nobody() -> None:
    word = {"seconds": [second(0.0, memory=70, memories={"uid-1": 50})], "holders": SHARED}
    assert one(**word, devices=[device(memory=0)]).tenancy is None
