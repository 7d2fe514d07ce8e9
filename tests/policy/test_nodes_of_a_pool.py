"""Where devices stand in several machines, and the cluster decides which one it is."""

from dataclasses import replace

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.capacity import with_drained
from gpulease.policy.model import (
    Activate,
    Alert,
    Bind,
    Clear,
    Device,
    Drain,
    EndReason,
    LeaseState,
    Progress,
    Requeue,
    Start,
    Wait,
    Warn,
)
from gpulease.policy.planner import plan
from gpulease.policy.reclaim.preemption_targets import TAKEN_HOLD
from gpulease.policy.remaining_capacity import GATHER_TURN
from tests.policy.build import (
    NOW,
    OUTS,
    active,
    at,
    busy,
    draining,
    idle,
    policy,
    request,
    seen,
    snapshot,
    starting,
    warned,
)


def nodes(*sizes, **changed):
    """Return devices n0/0, n0/1, ... for nodes of these sizes."""
    return tuple(
        Device(f"n{n}/{k}", "cards", node=f"n{n}", **changed)
        for n, size in enumerate(sizes)
        for k in range(size)
    )


def change(devices, uuids, **changed):
    return tuple(replace(d, **changed) if d.uuid in uuids else d for d in devices)


def starts(view):
    return {a.lease_id: a.devices for a in plan(view) if isinstance(a, Start)}


def waits(view):
    return {a.lease_id: a.reason for a in plan(view) if isinstance(a, Wait)}


def of_kind(view, kind):
    return {a.lease_id: a for a in plan(view) if isinstance(a, kind)}


# --- several devices of one node


def test_several_devices_are_of_one_node():
    assert starts(snapshot([request(1, count=2)], nodes(1, 2))) == {"r1": ("n1/0", "n1/1")}


def test_enough_devices_on_different_nodes_are_not_enough():
    view = snapshot([request(1, count=2, ticket=(at(-60), 1)), request(2)], nodes(1, 1))
    assert starts(view) == {"r2": ("n0/0",)}
    assert waits(view) == {"r1": "quarantined"}


def test_one_device_is_taken_where_the_fewest_stay_behind():
    assert starts(snapshot([request(1)], nodes(4, 1))) == {"r1": ("n1/0",)}


def test_one_device_is_taken_where_its_server_runs():
    view = snapshot([request(1), request(2)], nodes(4, 1), preferred_nodes={"r1": "n0"})
    assert starts(view) == {"r1": ("n0/0",), "r2": ("n1/0",)}


def test_a_full_or_unknown_node_of_the_server_keeps_nobody_waiting():
    held = [active(9, "n0/0")]
    view = snapshot([*held, request(1)], nodes(1, 2), preferred_nodes={"r1": "n0"})
    assert starts(view) == {"r1": ("n1/0",)}
    view = snapshot([request(1)], nodes(1), preferred_nodes={"r1": "elsewhere"})
    assert starts(view) == {"r1": ("n0/0",)}


def test_a_fall_back_is_taken_where_the_server_runs_too():
    slices = tuple(replace(d, pool="slices") for d in nodes(2, 2))
    told = policy()
    first = replace(told.classes[0], fallback=("slice",))
    told = replace(told, classes=(first, *told.classes[1:]))
    view = snapshot([request(1)], slices, policy=told, preferred_nodes={"r1": "n1"})
    assert starts(view) == {"r1": ("n1/0",)}


def test_a_busy_node_with_room_for_several_is_waited_for():
    devices = nodes(2, 1)
    holder = active(0, "n0/0")
    view = snapshot([holder, request(1, count=2, ticket=(at(-60), 1))], devices, {"r0": busy()})
    assert waits(view) == {"r1": "no_capacity"}


def test_idle_leases_are_taken_on_one_node_only():
    """n0 has one idle and one busy lease, n1 two idle ones: the two of n1 go."""
    holders = [active(0, "n0/0"), active(1, "n0/1"), active(2, "n1/0"), active(3, "n1/1")]
    evidence = {"r0": idle(1000), "r1": busy(), "r2": idle(200), "r3": idle(200)}
    wanted = request(9, count=2, ticket=(at(-60), 9))
    view = snapshot([*holders, wanted], nodes(2, 2), evidence)
    assert {k: a.nominated_for for k, a in of_kind(view, Warn).items()} == {
        "r0": None, "r2": "r9", "r3": "r9",
    }  # fmt: skip


def test_requests_for_whole_nodes_get_a_node_each_in_one_plan():
    leases = [active(n, f"n{n // 2}/{n % 2}") for n in range(6)]
    view = snapshot(
        [*leases, request(10, count=2), request(11, count=2)],
        nodes(2, 2, 2),
        {lease.id: idle(OUTS.idle_under_pressure + 1) for lease in leases},
        [seen(lease) for lease in leases],
    )
    left_for = {a.lease_id: a.nominated_for for a in plan(view) if isinstance(a, Warn)}
    assert left_for == {"r0": "r10", "r1": "r10", "r2": "r11", "r3": "r11"}


def test_nobody_leaves_for_a_request_that_no_node_could_ever_serve():
    holders = [active(0, "n0/0"), active(1, "n1/0")]
    evidence = {"r0": idle(200), "r1": idle(200)}
    wanted = request(9, count=2, ticket=(at(-60), 9))
    assert of_kind(snapshot([*holders, wanted], nodes(1, 1), evidence), Warn) == {}


# --- several nodes


def test_the_devices_of_each_node_stand_in_one_machine_by_rank():
    """Four devices for two nodes: three machines with three, two and one have two and two."""
    asked = request(1, count=4, nodes=2)
    assert starts(snapshot([asked], nodes(1, 2, 3))) == {"r1": ("n1/0", "n1/1", "n2/0", "n2/1")}


def test_several_nodes_share_a_machine_that_has_room_for_them():
    asked = request(1, count=4, nodes=2)
    assert starts(snapshot([asked], nodes(2, 5, 2))) == {"r1": tuple(f"n1/{n}" for n in range(4))}


def test_nodes_are_granted_together_or_not_at_all():
    holder = active(0, "n1/0")
    asked = request(1, count=4, nodes=2, ticket=(at(-60), 1))
    view = snapshot([holder, asked, request(2)], nodes(2, 2), {"r0": busy()})
    assert starts(view) == {"r2": ("n1/1",)}
    assert waits(view) == {"r1": "no_capacity"}


def test_devices_that_never_make_whole_nodes_are_out_of_the_question():
    asked = request(1, count=4, nodes=2)
    assert waits(snapshot([asked], nodes(1, 1, 1, 2))) == {"r1": "quarantined"}


def test_for_several_nodes_only_what_is_missing_is_taken_back():
    """n0 is free, n1 has one free and one idle device, n2 two idle ones: n1's is enough."""
    holders = [active(1, "n1/0"), active(2, "n2/0"), active(3, "n2/1")]
    evidence = {lease.id: idle(200) for lease in holders}
    asked = request(9, count=4, nodes=2, ticket=(at(-60), 9))
    view = snapshot([*holders, asked], nodes(2, 2, 2), evidence)
    assert {k: a.nominated_for for k, a in of_kind(view, Warn).items()} == {"r1": "r9"}


def test_nobody_leaves_for_nodes_of_which_one_cannot_be_had():
    holders = [active(0, "n0/0"), active(1, "n0/1"), active(2, "n1/0")]
    evidence = {"r0": idle(200), "r1": idle(200), "r2": busy()}
    asked = request(9, count=4, nodes=2, ticket=(at(-60), 9))
    assert of_kind(snapshot([*holders, asked], nodes(2, 2), evidence), Warn) == {}


def test_a_lease_on_several_nodes_gives_each_of_them_back():
    """It is idle; who asks for two devices of one machine is served by it."""
    idler = active(0, devices=("n0/0", "n0/1", "n1/0", "n1/1"), count=4, nodes=2)
    asked = request(9, count=2, ticket=(at(-60), 9))
    view = snapshot([idler, asked], nodes(2, 2), {"r0": idle(200)})
    assert {k: a.nominated_for for k, a in of_kind(view, Warn).items()} == {"r0": "r9"}


def test_what_was_given_up_for_several_nodes_is_kept_for_them():
    left = replace(
        active(0, devices=("n0/0", "n0/1"), count=2),
        state=LeaseState.ENDED,
        end_reason=EndReason.IDLE,
        nominated_for="r9",
    )
    leaving = draining(1, devices=("n1/0", "n1/1"), count=2, nominated_for="r9")
    asked = request(9, count=4, nodes=2, ticket=(at(-60), 9))
    view = snapshot([left, leaving, asked, request(10, count=2)], nodes(2, 2))
    assert starts(view) == {}
    assert waits(view) == {"r9": "no_capacity", "r10": "held"}


def test_nodes_gather_in_their_turn_and_hold_no_more_than_their_parts():
    """r9 holds n0 and what is free of n1; who asks for one device has the other machine's."""
    user = active(1, "n1/0")
    asked = request(9, count=4, nodes=2, ticket=(at(-1.5 * GATHER_TURN), 9))
    others = [request(n, ticket=(at(-50), n)) for n in (10, 11)]
    machines = (*nodes(2, 2), Device("n2/0", "cards", node="n2"))
    view = snapshot([user, asked, *others], machines, {"r1": busy()})
    assert starts(view) == {"r10": ("n2/0",)}
    assert waits(view) == {"r9": "no_capacity", "r11": "held"}


def test_who_waits_for_a_place_takes_as_many_nodes_anew():
    """Somebody landed on n0, where the first node of r1 was to be: it takes two of n2."""
    mine = starting(1, devices=("n0/0", "n0/1", "n1/0", "n1/1"), count=4, nodes=2)
    other = active(2, "n2/0")
    machines = change(nodes(2, 2, 3), {"n0/0"}, occupied_by="r2")
    view = snapshot([mine, other], machines, observed=[seen(other, devices=("n0/0",))])
    binds = of_kind(view, Bind)
    assert binds["r2"].devices == ("n0/0",)
    assert binds["r1"].devices == ("n1/0", "n1/1", "n2/0", "n2/1")


# --- classes and nodes


def test_a_device_serves_only_the_classes_it_can():
    devices = change(nodes(1, 1), {"n0/0"}, serves=("other",))
    assert starts(snapshot([request(1), request(2)], devices)) == {"r1": ("n1/0",)}


def test_an_idle_lease_that_cannot_help_is_left_alone():
    devices = change(nodes(1, 1), {"n0/0"}, serves=("other",))
    holders = [active(0, "n0/0"), active(1, "n1/0")]
    view = snapshot([*holders, request(9)], devices, {"r0": idle(200), "r1": busy()})
    assert of_kind(view, Warn) == {}


# --- a node that is about to go


def test_a_leaving_node_takes_nothing_new():
    assert waits(snapshot([request(1)], nodes(1, leaving=True))) == {"r1": "quarantined"}


def test_a_lease_on_a_leaving_node_is_warned_however_busy():
    view = snapshot([active(0, "n0/0")], nodes(1, leaving=True), {"r0": busy()})
    (action,) = plan(view)
    assert action == Warn("r0", "node_leaving", at(OUTS.warning), EndReason.FORCED, None)
    lease = lifecycle.apply(view.leases[0], action, NOW, OUTS)
    assert lifecycle.keep_refusal(lease, OUTS) is not None


def test_then_it_drains_and_parks_what_cannot_go_home():
    lease = warned(
        0, -1, devices=("n0/0",), reason="node_leaving", end_reason_wanted=EndReason.FORCED
    )
    (action,) = plan(snapshot([lease], nodes(1, leaving=True), {"r0": busy()}))
    assert isinstance(action, Drain)
    assert (action.reason, action.end_reason, action.park) == (
        "node_leaving",
        EndReason.FORCED,
        True,
    )


def test_a_node_that_stays_after_all_clears_the_warning():
    lease = warned(
        0, 30, devices=("n0/0",), reason="node_leaving", end_reason_wanted=EndReason.FORCED
    )
    view = snapshot([lease], nodes(1), {"r0": busy()})
    assert plan(view) == [Clear("r0", "node_back")]


def test_what_is_not_known_warns_nobody():
    view = snapshot(
        [active(0, "n0/0")], nodes(1, leaving=True), {"r0": busy()}, capacity_known=False
    )
    assert plan(view) == []


# --- where a lease really landed


def test_a_lease_has_what_it_landed_on():
    lease = starting(0, "n0/0")
    view = snapshot(
        [lease], nodes(1, 1), observed=[seen(lease, connected=False, devices=("n1/0",))]
    )
    assert plan(view) == [Bind("r0", "starting", ("n1/0",))]


def test_the_record_is_put_right_with_the_step_that_is_taken_anyway():
    lease = starting(0, "n0/0")
    view = snapshot([lease], nodes(1, 1), observed=[seen(lease, devices=("n1/0",))])
    assert plan(view) == [Activate("r0", "connected", ("n1/0",))]
    pulling = seen(lease, connected=False, devices=("n1/0",), stage="pulling")
    view = snapshot([lease], nodes(1, 1), observed=[pulling])
    assert plan(view) == [Progress("r0", "pulling", ("n1/0",))]


def test_two_leases_that_landed_on_each_others_devices_swap():
    one, two = starting(0, "n0/0"), starting(1, "n1/0")
    words = [
        seen(one, connected=False, devices=("n1/0",)),
        seen(two, connected=False, devices=("n0/0",)),
    ]
    found = of_kind(snapshot([one, two], nodes(1, 1), observed=words), Bind)
    assert {k: a.devices for k, a in found.items()} == {"r0": ("n1/0",), "r1": ("n0/0",)}


def test_a_lease_that_waits_gives_way_and_takes_what_was_left():
    one, two = starting(0, "n0/0"), starting(1, "n1/0")
    devices = change(nodes(1, 1), {"n1/0"}, occupied_by="r0")
    words = [seen(one, connected=False, devices=("n1/0",)), seen(two, connected=False)]
    found = of_kind(snapshot([one, two], devices, observed=words), Bind)
    assert {k: a.devices for k, a in found.items()} == {"r0": ("n1/0",), "r1": ("n0/0",)}


def test_a_lease_that_waits_without_room_is_left_with_nothing():
    one, two = starting(0, "n1/0"), starting(1, "n1/1")
    words = [seen(one, connected=False, devices=("n1/0", "n1/1")), seen(two, connected=False)]
    found = of_kind(snapshot([one, two], nodes(0, 2), observed=words), Bind)
    assert {k: a.devices for k, a in found.items()} == {"r0": ("n1/0", "n1/1"), "r1": ()}


def test_a_lease_that_runs_is_never_moved_by_a_guess():
    one, two = starting(0, "n0/0"), active(1, "n1/0")
    words = [seen(one, connected=False, devices=("n1/0",)), seen(two)]
    view = snapshot([one, two], nodes(1, 1), {"r1": busy()}, observed=words)
    assert of_kind(view, Bind) == {}


# --- stages of a start


def test_each_stage_is_recorded_once():
    lease = starting(0, "n0/0")
    view = snapshot([lease], nodes(1), observed=[seen(lease, connected=False, stage="scheduling")])
    assert plan(view) == [Progress("r0", "scheduling")]
    known = replace(lease, reason="scheduling")
    view = snapshot([known], nodes(1), observed=[seen(known, connected=False, stage="scheduling")])
    assert plan(view) == []


def test_a_long_pull_is_no_time_out_and_every_other_stage_has_its_own():
    late = {"state_since": at(-900), "stage_since": at(-900), "devices": ("n0/0",)}
    pulling = starting(0, reason="pulling", **late)
    word = seen(pulling, connected=False, stage="pulling")
    assert plan(snapshot([pulling], nodes(1), observed=[word])) == []
    stuck = replace(pulling, reason="connecting")
    word = seen(stuck, connected=False, stage="connecting")
    assert (
        of_kind(snapshot([stuck], nodes(1), observed=[word]), Requeue)["r0"].reason
        == "start_timeout"
    )


@pytest.mark.parametrize("reason", sorted(lifecycle.OTHERS_FAILURES))
def test_a_start_that_failed_by_nobodys_fault_is_tried_for_ever(reason):
    lease = starting(0, "n0/0", failures=2)
    view = snapshot([lease], nodes(1), observed=[seen(lease, connected=False, failed=reason)])
    (action,) = plan(view)
    assert isinstance(action, Requeue)
    assert (action.reason, action.failure) == (reason, False)


def test_a_start_on_a_lost_node_is_tried_elsewhere():
    lease = starting(0, "n0/0")
    (action,) = plan(snapshot([lease], nodes(1, lost=True)))
    assert isinstance(action, Requeue)
    assert (action.reason, action.failure) == ("node_lost", False)


# --- others take what was granted


def robbed(count, ago=10.0):
    return {"cards": tuple(at(-ago) for _ in range(count))}


def test_nothing_is_reclaimed_in_a_pool_whose_capacity_was_taken_twice():
    leases = [active(0, "n0/0"), request(9)]
    view = snapshot(leases, nodes(1), {"r0": idle(1000)})
    assert of_kind(view, Warn)
    view = replace(view, contended=robbed(1))
    assert of_kind(view, Warn)
    view = replace(view, contended=robbed(2))
    assert of_kind(view, Warn) == {}
    (alert,) = [a for a in plan(view) if isinstance(a, Alert)]
    assert alert.reason == "foreign_capacity"
    assert "cards" in alert.sentence
    view = replace(view, contended=robbed(2, TAKEN_HOLD + 1))
    assert of_kind(view, Warn)


def test_what_is_free_there_is_granted_all_the_same():
    assert starts(snapshot([request(9)], nodes(1), contended=robbed(2))) == {"r9": ("n0/0",)}


def test_other_pools_are_not_concerned():
    devices = (*nodes(1), Device("MIG-0", "slices"))
    lease = active(1, "MIG-0", gpu_class="slice")
    view = snapshot([lease], devices, {"r1": idle(1000)}, contended=robbed(2))
    assert of_kind(view, Warn)["r1"].reason == "idle"
    assert lease.state is LeaseState.ACTIVE


def test_a_drained_node_is_one_that_is_about_to_go():
    devices = with_drained([*nodes(1), Device("other", "cards", node="n9")], ("n9", "gone"))
    assert [each.uuid for each in devices if each.leaving] == ["other"]
    assert waits(snapshot([request(1)], with_drained(nodes(1), ("n0",)))) == {"r1": "quarantined"}
    assert with_drained(devices, ()) is devices
