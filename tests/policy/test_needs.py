"""What a request demands of its GPUs, from the text to the device it gets."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import admission_check, fitting
from gpulease.policy.fitting import suits, versatility
from gpulease.policy.model import Device, End, Start, Wait, Warn
from gpulease.policy.planner import plan
from tests.policy.build import active, idle, request, seen, snapshot

GIB = 2**30
#: A mixed site: two small cards, one large, one large with ECC; each in a machine of its own.
MIXED = (
    Device("big", "cards", node="n0", memory=80 * GIB, compute=(8, 0)),
    Device("ecc", "cards", node="n1", memory=80 * GIB, compute=(9, 0), ecc=True),
    Device("small-1", "cards", node="n2", memory=16 * GIB, compute=(7, 5), ecc=False),
    Device("small-2", "cards", node="n3", memory=16 * GIB, compute=(7, 5)),
)


def starts(view):
    return {a.lease_id: a.devices for a in plan(view) if isinstance(a, Start)}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" , ", ""),
        ("memory>=20GiB", "memory>=20GiB"),
        ("memory >= 20 GiB", "memory>=20GiB"),
        ("memory>=1024MiB", "memory>=1GiB"),
        ("ecc, cc>=8, memory>=20GiB", "memory>=20GiB, cc>=8.0, ecc"),
        ("cc>=7.5,cc>=8.0", "cc>=8.0"),
        ("memory>=0", ""),
    ],
)
def test_needs_are_written_in_one_way(text, canonical):
    assert str(fitting.parse_needs(text)) == canonical
    assert fitting.parse_needs(canonical) == fitting.parse_needs(text)


@pytest.mark.parametrize(
    "text",
    ["memory", "memory>20GiB", "memory<=20GiB", "memory>=x", "cc>=a", "cc>=8.0.1", "ecc>=1",
     "ECC", "speed>=1", ">=20GiB", "memory>=-1", "memory>=20GiB ecc", "\x00"],
)  # fmt: skip
def test_what_is_no_demand_is_refused_with_how_it_is_written(text):
    with pytest.raises(ValueError, match=r"GPU|write|below"):
        fitting.parse_needs(text)
    ask = admission_check.Ask("ann", "", needs=text)
    with pytest.raises(GPULeaseError) as refused:
        admission_check.answer(ask, snapshot([], MIXED), "r1", request(1).ticket)
    assert refused.value.reason == "bad_needs"
    assert "memory>=20GiB" in refused.value.next_step


def test_what_nobody_has_is_refused_at_the_door_with_the_most_there_is():
    ask = admission_check.Ask("ann", "", needs="memory>=96GiB")
    with pytest.raises(GPULeaseError) as refused:
        admission_check.answer(ask, snapshot([], MIXED), "r1", request(1).ticket)
    assert (refused.value.reason, refused.value.status) == ("bad_needs", 422)
    assert "80GiB" in refused.value.next_step
    two = admission_check.Ask("ann", "", needs="ecc", count=2)
    with pytest.raises(GPULeaseError, match="No machine has 2 GPUs of class 't4' with ecc"):
        admission_check.answer(two, snapshot([], MIXED), "r1", request(1).ticket)


def test_a_lease_that_meets_less_is_no_answer_to_a_demand():
    mine = active(0, "small-1", user="ann")
    for text, same in (("", True), ("ecc", False)):
        ask = admission_check.Ask("ann", "", needs=text)
        view = snapshot([mine], MIXED)
        if same:
            assert admission_check.answer(ask, view, "r1", request(1).ticket).lease is mine
        else:
            with pytest.raises(GPULeaseError, match="already has a lease"):
                admission_check.answer(ask, view, "r1", request(1).ticket)


def test_each_gets_the_least_that_will_do():
    wants = [
        request(1),
        request(2, needs="memory>=40GiB"),
        request(3, needs="ecc"),
        request(4),
    ]
    assert starts(snapshot(wants, MIXED)) == {
        "r1": ("small-1",), "r2": ("big",), "r3": ("ecc",), "r4": ("small-2",)
    }  # fmt: skip


def test_a_fraction_leaves_the_card_alone_that_could_be_had_whole():
    both = Device("a-whole", "cards", node="n0", serves=("t4", "half"))
    half = Device("b-half", "cards", node="n1", serves=("half",))
    policy = snapshot([]).policy
    halves = replace(policy.classes[0], name="half")
    policy = replace(policy, classes=(*policy.classes, halves))
    wants = [request(1, gpu_class="half"), request(2, gpu_class="t4")]
    view = snapshot(wants, (both, half), policy=policy)
    assert starts(view) == {"r1": ("b-half",), "r2": ("a-whole",)}


def test_who_waits_for_a_large_card_takes_no_small_one_from_anybody():
    leases = [active(n, d.uuid, user=d.uuid) for n, d in enumerate(MIXED)]
    evidence = {lease.id: idle(400) for lease in leases}
    waits = request(9, needs="memory>=40GiB")
    view = snapshot([*leases, waits], MIXED, evidence, [seen(each) for each in leases])
    warned = {a.lease_id: a.nominated_for for a in plan(view) if isinstance(a, Warn)}
    assert warned["r0"] == "r9" or warned["r1"] == "r9"
    assert {warned.get("r2"), warned.get("r3")} == {None}


attributes = st.builds(
    lambda memory, compute, ecc, serves: {
        "memory": memory * GIB, "compute": compute, "ecc": ecc, "serves": serves
    },
    st.sampled_from((0, 16, 40, 80)),
    st.sampled_from((None, (7, 5), (8, 0), (9, 0))),
    st.sampled_from((None, False, True)),
    st.sampled_from((None, ("t4",), ("t4", "other"), ("other",))),
)  # fmt: skip
demands = st.sampled_from(("", "memory>=40GiB", "cc>=8.0", "ecc", "memory>=16GiB, cc>=7.5, ecc"))


@given(st.lists(attributes, min_size=1, max_size=6), st.lists(demands, min_size=1, max_size=5))
def test_whoever_is_served_has_what_they_need_and_nobody_waits_for_what_is_free(there, wanted):
    """And the first takes nothing better than what would do; the second half is work-conserving."""
    devices = tuple(
        Device(f"g{n}", "cards", node=f"n{n % 3}", **each) for n, each in enumerate(there)
    )
    view = snapshot([request(n, needs=text) for n, text in enumerate(wanted)], devices)
    known, given_out = {d.uuid: d for d in devices}, starts(view)
    for n, text in enumerate(wanted):
        for uuid in given_out.get(f"r{n}", ()):
            assert suits("t4", known[uuid], text)
    taken = {uuid for uuids in given_out.values() for uuid in uuids}
    for n, text in enumerate(wanted):
        if f"r{n}" not in given_out:
            assert not any(suits("t4", d, text) for d in devices if d.uuid not in taken)
    better = versatility(devices)
    if "r0" in given_out:
        would_do = [better.get(d.uuid, 0) for d in devices if suits("t4", d, wanted[0])]
        assert better.get(given_out["r0"][0], 0) == min(would_do)
    assert not any(isinstance(a, End) for a in plan(view))
    assert {a.lease_id for a in plan(view) if isinstance(a, Start | Wait)} >= set(given_out)
