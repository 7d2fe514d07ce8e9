"""Who of the waiting gets what is free."""

from dataclasses import replace
from decimal import Decimal
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy import lifecycle
from gpulease.policy.explanation import forecast
from gpulease.policy.model import Bound, Device, End, EndReason, LeaseState, Start, Wait
from gpulease.policy.planner import plan
from gpulease.policy.remaining_capacity import GATHER_TURN, gathers
from tests.policy.build import (
    NOW,
    OUTS,
    active,
    at,
    busy,
    cards,
    draining,
    idle,
    policy,
    request,
    snapshot,
    starting,
)


def starts(view):
    return {a.lease_id: a.devices for a in plan(view) if isinstance(a, Start)}


def waits(view):
    return {a.lease_id: a.reason for a in plan(view) if isinstance(a, Wait)}


def test_a_free_gpu_is_granted_at_once():
    assert starts(snapshot([request(1)])) == {"r1": ("GPU-0",)}


def test_first_come_first_served_whatever_the_listing():
    queue = [request(n) for n in (3, 1, 2)]
    assert starts(snapshot(queue, 2)) == {"r1": ("GPU-0",), "r2": ("GPU-1",)}
    assert waits(snapshot(queue, 2)) == {"r3": "no_capacity"}


def test_a_reason_that_stands_is_not_written_again():
    view = snapshot([active(0), request(1, reason="no_capacity")], evidence={"r0": idle(0)})
    assert plan(view) == []


def test_a_requeued_request_keeps_its_place():
    back = request(1, attempt=2, failures=1, reason="supervisor_failed", not_before=at(-1))
    assert starts(snapshot([request(2), back])) == {"r1": ("GPU-0",)}


def test_a_request_that_backs_off_lets_others_pass_and_keeps_its_reason():
    back = request(1, failures=1, reason="supervisor_failed", not_before=at(3))
    view = snapshot([request(2), back])
    assert starts(view) == {"r2": ("GPU-0",)}
    assert waits(view) == {}


def test_a_server_that_still_starts_lets_others_pass():
    view = snapshot([request(1, server_ready=False), request(2)])
    assert starts(view) == {"r2": ("GPU-0",)}
    assert waits(view) == {"r1": "server_starting"}


@pytest.mark.parametrize(
    "device",
    [
        {"healthy": False},
        {"lost": True},
        {"occupied_by": "foreign"},
    ],
)
def test_a_device_that_cannot_be_trusted_is_never_granted(device):
    view = snapshot([request(1)], cards(1, **device))
    assert starts(view) == {}
    assert waits(view) == {"r1": "quarantined"}


def test_a_device_is_free_only_when_its_last_process_is_gone():
    assert starts(snapshot([request(1)], cards(1, occupied_by="r0"))) == {}


def test_a_held_device_is_not_free():
    assert starts(snapshot([active(0), request(1)], evidence={"r0": idle(0)})) == {}


def test_the_limit_of_a_user_counts_what_this_plan_grants():
    queue = [request(n, user="ann", server=f"s{n}") for n in (1, 2, 3)] + [request(4)]
    view = snapshot(queue, 4)
    assert set(starts(view)) == {"r1", "r2", "r4"}
    assert waits(view) == {"r3": "user_limit"}


def test_the_limit_of_a_server():
    holder = draining(0, user="ann", server="s")
    view = snapshot([holder, request(1, user="ann", server="s")], 2)
    assert waits(view) == {"r1": "server_limit"}


def test_pools_do_not_wait_for_each_other():
    devices = (*cards(1, lost=True), Device("MIG-0", "slices"))
    view = snapshot([request(1), request(2, gpu_class="slice")], devices)
    assert starts(view) == {"r2": ("MIG-0",)}


def test_several_devices_are_granted_together_or_not_at_all():
    assert starts(snapshot([request(1, count=2)], 2)) == {"r1": ("GPU-0", "GPU-1")}
    assert starts(snapshot([request(1, count=2)], 1)) == {}


def test_a_small_request_passes_a_large_one_that_cannot_be_served():
    fresh = {"ticket": (at(-60), 1)}
    view = snapshot([request(1, count=2, **fresh), request(2, ticket=(at(-50), 2))], 1)
    assert starts(view) == {"r2": ("GPU-0",)}


def test_a_large_request_gathers_in_its_turn():
    waited = {"ticket": (at(-1.5 * GATHER_TURN), 1)}
    asking = [request(1, count=2, **waited), request(2, ticket=(at(-50), 2))]
    view = snapshot([active(9, "GPU-1"), *asking], 2, {"r9": busy()})
    assert starts(view) == {}
    assert waits(view)["r2"] == "held"


def test_nothing_is_held_for_a_large_request_where_it_never_fits():
    """n0 has one device and is free, n1 has two that are in use: r1 can only have those of n1."""
    devices = tuple(replace(d, node=f"n{min(n, 1)}") for n, d in enumerate(cards(3)))
    waited = {"ticket": (at(-1.5 * GATHER_TURN), 1)}
    users = [active(8, "GPU-1"), active(9, "GPU-2")]
    asking = [request(1, count=2, **waited), request(2, ticket=(at(-50), 2))]
    view = snapshot([*users, *asking], devices, {"r8": busy(), "r9": busy()})
    assert starts(view) == {"r2": ("GPU-0",)}


def test_a_gathering_lets_others_have_what_stood_for_it_when_its_longest_turn_is_over():
    """Turns of 10, 20 and then 20 minutes: it gathers from 10 to 30 and from 50 to 70."""
    terms = replace(policy(), gang_hold_max=2 * GATHER_TURN)
    for turns, gathered in ((0.9, False), (1.1, True), (2.9, True), (3.1, False), (4.9, False),
                            (5.1, True), (6.9, True), (7.1, False)):  # fmt: skip
        waited = {"ticket": (at(-turns * GATHER_TURN), 1)}
        wants = [request(1, count=2, **waited), request(2, ticket=(at(-50), 2))]
        view = snapshot([active(9, "GPU-1"), *wants], 2, {"r9": busy()}, policy=terms)
        served = starts(view)
        assert served == ({} if gathered else {"r2": ("GPU-0",)}), turns


@given(st.floats(1, 86400), st.integers(0, 400))
def test_devices_stand_for_one_request_for_so_long_and_then_for_others(most, minutes):
    """In no longer time than the bound a turn of holding ends, and in three a new one begins."""
    terms = replace(policy(), gang_hold_max=most)

    def holds(waited: float) -> bool:
        mine = request(1, count=2, ticket=(at(-waited), 1))
        return gathers(mine, snapshot([mine], 1, policy=terms))

    begin = 60.0 * minutes
    steps = [begin + most * n / 50 for n in range(156)]
    held = [holds(at_last) for at_last in steps]
    longest = max((len(list(run)) for kept, run in groupby(held) if kept), default=0)
    assert longest <= 51
    assert any(held)


def test_without_a_turn_of_holding_only_what_is_free_at_once_is_taken():
    terms = replace(policy(), gang_hold_max=0)
    mine = request(1, count=2, ticket=(at(-1.5 * GATHER_TURN), 1))
    assert starts(snapshot([mine, request(2)], 1, policy=terms)) == {"r2": ("GPU-0",)}


def test_what_was_reclaimed_for_a_request_is_kept_for_it():
    """Two GPUs drain for r2 one after the other; r3 comes meanwhile and must not take the first."""
    ended = replace(
        draining(0, nominated_for="r2"),
        state=LeaseState.ENDED,
        end_reason=EndReason.IDLE,
        ended=NOW,
        drain_until=None,
    )
    other = draining(1, nominated_for="r2")
    view = snapshot([ended, other, request(2, count=2, ticket=(at(-60), 2)), request(3)], 2)
    assert starts(view) == {}
    assert waits(view)["r3"] == "held"


def test_a_hold_lapses_with_its_request():
    ended = replace(
        draining(0, nominated_for="r2"), state=LeaseState.ENDED, end_reason=EndReason.IDLE
    )
    assert starts(snapshot([ended, request(3)], 1)) == {"r3": ("GPU-0",)}


def test_a_hold_lapses_while_its_request_could_not_start_anyway():
    ended = replace(
        draining(0, nominated_for="r2"), state=LeaseState.ENDED, end_reason=EndReason.IDLE
    )
    view = snapshot([ended, request(2, server_ready=False), request(3)], 1)
    assert starts(view) == {"r3": ("GPU-0",)}


def test_a_class_that_is_not_on_offer_any_more_is_denied():
    actions = plan(snapshot([request(1, gpu_class="gone")]))
    assert actions == [End("r1", "unknown_class", EndReason.DENIED)]


def test_nothing_is_granted_while_the_capacity_is_not_known():
    assert plan(snapshot([request(1)], capacity_known=False)) == []


def test_a_starting_lease_holds_its_device():
    assert starts(snapshot([starting(0), request(1)])) == {}


def test_two_leases_a_server_where_the_policy_says_so():
    two = policy(leases_per_server=2)
    holder = active(0, user="ann", server="s")
    view = snapshot([holder, request(1, user="ann", server="s")], 2, {"r0": idle(0)}, policy=two)
    assert starts(view) == {"r1": ("GPU-1",)}


# --- what beside devices bounds a start: a namespace's quota


def bound(left, *numbers, takes=1, gpu_class="t4"):
    amounts = {(f"r{number}", gpu_class): {1: Decimal(takes)} for number in numbers}
    return Bound("Quota gpus: 1 of 2 used.", Decimal(left), amounts)


def test_who_a_quota_has_no_room_for_waits_with_its_numbers_and_holds_nothing():
    view = snapshot([request(1), request(2), request(3)], 2, bounds=(bound(0, 1, 2),))
    assert starts(view) == {"r3": ("GPU-0",)}
    told = {a.lease_id: (a.reason, a.detail) for a in plan(view) if isinstance(a, Wait)}
    assert told == dict.fromkeys(("r1", "r2"), ("quota_exceeded", "Quota gpus: 1 of 2 used."))


def test_the_quotas_numbers_are_recorded_with_the_wait():
    asked = request(1)
    (wait,) = plan(snapshot([asked], bounds=(bound(0, 1),)))
    after = lifecycle.apply(asked, wait, NOW, OUTS)
    assert (after.reason, after.detail) == ("quota_exceeded", "Quota gpus: 1 of 2 used.")
    again = snapshot([after], bounds=(bound(0, 1),))
    assert plan(again) == []
    assert forecast.forecasts(again)["r1"].expected_start is None


def test_what_one_plan_grants_counts_for_the_quota():
    view = snapshot([request(n) for n in (1, 2, 3)], 3, bounds=(bound(2, 1, 2, 3),))
    assert list(starts(view)) == ["r1", "r2"]
    assert waits(view) == {"r3": "quota_exceeded"}


def test_a_large_request_that_a_quota_refuses_lets_a_small_one_pass():
    small, large = request(2), request(1, count=2)
    amounts = {("r1", "t4"): {2: Decimal(2)}, ("r2", "t4"): {1: Decimal(1)}}
    view = snapshot([large, small], 2, bounds=(Bound("Quota.", Decimal(1), amounts),))
    assert list(starts(view)) == ["r2"]


@pytest.mark.parametrize(("left", "got"), [(4, 4), (3, 3), (2, 2), (1, 1), (0, 0)])
def test_a_request_that_can_live_with_fewer_takes_what_the_quota_leaves(left, got):
    asked = request(1, count=4, min_count=1)
    takes = {("r1", "t4"): {number: Decimal(number) for number in range(1, 5)}}
    view = snapshot([asked], 4, bounds=(Bound("Quota.", Decimal(left), takes),))
    assert [len(devices) for devices in starts(view).values()] == ([got] if got else [])
    assert waits(view) == ({} if got else {"r1": "quota_exceeded"})


def test_nobody_is_asked_to_leave_for_a_request_that_a_quota_keeps_out():
    view = snapshot([active(0), request(1)], evidence={"r0": idle(10_000)}, bounds=(bound(0, 1),))
    assert not [a for a in plan(view) if a.lease_id == "r0" and a.reason == "nominated"]
    asked = snapshot([active(0), request(1)], evidence={"r0": idle(400)})
    assert plan(replace(asked, bounds=(bound(0, 1),))) != plan(asked)


def test_a_fall_back_that_a_quota_refuses_serves_nobody():
    base = policy()
    t4, slices = base.classes
    offered = replace(base, classes=(replace(t4, fallback=("slice",)), slices))
    devices = (Device("S-0", "slices"), *cards(1, occupied_by="foreign"))
    view = snapshot([request(1)], devices, policy=offered)
    assert starts(view) == {"r1": ("S-0",)}
    assert starts(replace(view, bounds=(bound(0, 1, gpu_class="slice"),))) == {}


def test_a_quota_that_is_overdrawn_leaves_those_in_peace_who_take_nothing_of_it():
    view = snapshot([request(1)], bounds=(bound(-3, 2),))
    assert starts(view) == {"r1": ("GPU-0",)}


def test_what_a_quota_said_is_over_once_something_else_keeps_the_request():
    told = request(1, reason="quota_exceeded", detail="Quota gpus: 1 of 2 used.")
    (wait,) = plan(snapshot([active(0), told], evidence={"r0": idle(0)}))
    assert lifecycle.apply(told, wait, NOW, OUTS).detail == ""
