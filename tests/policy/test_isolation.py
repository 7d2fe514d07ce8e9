"""A lease on which a plan fails costs the others nothing, and an admin is told."""

from dataclasses import replace

import pytest

from gpulease.policy.model import Alert, Start, TimeOuts, Warn
from gpulease.policy.planner import plan
from tests.policy.build import OUTS, active, at, busy, idle, policy, request, seen, snapshot

ENDLESS = replace(policy(), classes=(
    replace(policy().classes[0]),
    replace(policy().classes[1], pool="cards", time_outs=TimeOuts(warning=1e18)),
))  # fmt: skip


def test_what_overflows_for_one_lease_is_said_and_the_others_go_on():
    """Such a policy was accepted once: every round ended with an OverflowError."""
    broken = active(0, gpu_class="slice")
    leases = [broken, active(1), active(2), request(8), request(9)]
    view = snapshot(
        leases,
        4,
        {"r0": idle(OUTS.idle + 1), "r1": idle(OUTS.idle + 1), "r2": busy()},
        [seen(each) for each in leases[:3]],
        policy=ENDLESS,
    )
    found = {(type(action), action.lease_id) for action in plan(view)}
    assert {(Start, "r8"), (Warn, "r1")} <= found
    (alert,) = [each for each in plan(view) if isinstance(each, Alert)]
    assert (alert.lease_id, alert.reason) == ("r0", "not_plannable")
    assert "OverflowError" in alert.sentence


def test_what_a_lease_that_is_set_aside_holds_is_given_to_nobody():
    broken = active(0, gpu_class="slice", hard_end=at(60))
    view = snapshot([broken, request(9)], 1, {"r0": busy()}, [seen(broken)], policy=ENDLESS)
    actions = plan(view)
    assert not [action for action in actions if isinstance(action, Start)]
    assert [action.reason for action in actions if isinstance(action, Alert)] == ["not_plannable"]


def test_several_are_found_in_any_order():
    leases = [active(n, gpu_class="slice" if n % 3 == 0 else "t4") for n in range(10)]
    evidence = {each.id: idle(OUTS.idle + 1) for each in leases}
    plans = []
    for order in (leases, leases[::-1]):
        view = snapshot(order, 10, evidence, [seen(each) for each in leases], policy=ENDLESS)
        plans.append(plan(view))
    assert plans[0] == plans[1]
    told = [action.lease_id for action in plans[0] if isinstance(action, Alert)]
    assert told == ["r0", "r3", "r6", "r9"]
    assert sorted(a.lease_id for a in plans[0] if isinstance(a, Warn)) == [
        "r1", "r2", "r4", "r5", "r7", "r8",
    ]  # fmt: skip


def test_what_no_lease_is_to_blame_for_is_raised():
    class Broken(dict):
        def items(self):
            raise RuntimeError("contended")

    for leases in ([], [active(1)], [active(1), request(2)]):
        with pytest.raises(RuntimeError, match="contended"):
            plan(snapshot(leases, 2, contended=Broken()))
