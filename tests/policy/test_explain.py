"""Every state and reason has its words; positions and expectations are honest."""

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import gpulease
from gpulease.policy import lifecycle, reasons
from gpulease.policy.explanation.catalogue import ADMIN_STEPS, REFUSALS, audited
from gpulease.policy.explanation.explain import admin_step, explain
from gpulease.policy.explanation.forecast import expected_end, expected_start, next_starts, position
from gpulease.policy.idleness import warned_at
from gpulease.policy.lifecycle.table import LEAVING_CAUSES, TRANSITIONS
from gpulease.policy.model import Drain, End, EndReason, LeaseState, Warn
from gpulease.service.languages import catalogue
from gpulease.texts import Text, instant
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
    quiet,
    request,
    snapshot,
    starting,
    unknown,
    warned,
)

POLICY = policy()
MADE = {
    LeaseState.QUEUED: request(1),
    LeaseState.STARTING: starting(1),
    LeaseState.ACTIVE: active(1),
    LeaseState.WARNED: warned(1),
    LeaseState.DRAINING: draining(1),
    LeaseState.ENDED: lifecycle.end(active(1), EndReason.IDLE, NOW),
}
REACHABLE = sorted(
    {(row.target, reason) for row in lifecycle.TRANSITIONS for reason in row.reasons}
)


def test_every_reason_a_lease_can_carry_is_explained():
    for state, reason in REACHABLE:
        words = explain(replace(MADE[state], reason=reason), POLICY)
        own = {
            LeaseState.QUEUED: reasons.WAITING,
            LeaseState.STARTING: reasons.STARTING,
            LeaseState.ACTIVE: reasons.ACTIVE,
            LeaseState.WARNED: reasons.LEAVING,
            LeaseState.DRAINING: reasons.LEAVING,
            LeaseState.ENDED: reasons.ENDED,
        }[state]
        assert reason in own
        assert words.sentence
        assert words.next_step
        assert "{" not in words.sentence + words.next_step


@pytest.mark.parametrize("cause", sorted(lifecycle.START_FAILURES))
def test_a_lease_that_failed_says_why_where_that_is_known(cause):
    ended = lifecycle.apply(active(1), End("r1", cause, EndReason.FAILED), NOW, OUTS)
    words = explain(ended, POLICY)
    general = explain(replace(ended, end_cause=""), POLICY)
    assert (words == general) is (cause not in reasons.CAUSES)
    assert "{" not in words.sentence + words.next_step


def test_every_cause_is_a_code_and_a_requests_own_failures_all_have_words():
    assert set(reasons.CAUSES) <= lifecycle.START_FAILURES | LEAVING_CAUSES
    assert set(reasons.CAUSES) >= LEAVING_CAUSES
    assert lifecycle.OWN_FAILURES - {"supervisor_failed"} <= set(reasons.CAUSES)


def test_an_admins_step_belongs_to_a_code_that_a_lease_can_have():
    tables = (
        reasons.WAITING, reasons.STARTING, reasons.ACTIVE, reasons.LEAVING, reasons.ENDED,
        reasons.CAUSES,
    )  # fmt: skip
    assert set(ADMIN_STEPS) <= {code for words in tables for code in words}


@pytest.mark.parametrize("cause", sorted(LEAVING_CAUSES))
def test_a_lease_that_had_to_leave_says_why_as_exactly_as_its_warning(cause):
    left = EndReason.PREEMPTED
    steps = [
        Warn("r1", cause, at(60), left),
        Drain("r1", cause, at(60), left, park=False),
        End("r1", "done", left),
    ]
    ended = active(1)
    for step in steps:
        ended = lifecycle.apply(ended, step, NOW, OUTS)
    assert ended.end_reason is left
    assert explain(ended, POLICY).sentence == reasons.CAUSES[cause][0]


def test_what_ends_otherwise_than_it_was_warned_has_no_cause():
    warned = lifecycle.apply(
        active(1), Warn("r1", "over_share", at(60), EndReason.PREEMPTED), NOW, OUTS
    )
    ended = lifecycle.apply(warned, End("r1", "server_gone", EndReason.SERVER_GONE), NOW, OUTS)
    assert ended.end_cause == ""


@pytest.mark.parametrize("cause", sorted(set(reasons.CAUSES) - LEAVING_CAUSES))
def test_an_admin_reads_what_an_admin_can_do(cause):
    ended = lifecycle.apply(active(1), End("r1", cause, EndReason.FAILED), NOW, OUTS)
    step = admin_step(ended)
    assert step
    assert "{" not in step
    assert step != explain(ended, POLICY).next_step
    assert not admin_step(active(1)), "a lease that is as it should be needs nothing"


@pytest.mark.parametrize(("why", "end"), [("gone", EndReason.FAILED), ("evicted", EndReason.IDLE)])
def test_other_ends_have_no_cause(why, end):
    assert lifecycle.apply(active(1), End("r1", why, end), NOW, OUTS).end_cause == ""


def codes_raised() -> set[str]:
    """Return the reason codes that policy, store and service raise, read from their source."""
    found = set()
    package = Path(gpulease.__file__).parent
    for room in ("policy", "store", "service"):
        for path in (package / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_error = (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "GPULeaseError"
                )
                if is_error and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(node.args[0].value)
    return found


def test_every_refusal_is_explained():
    codes = codes_raised()
    assert "unknown_class" in codes
    assert codes - set(REFUSALS) == set()
    assert all(re.fullmatch("[a-z_]+", code) for code in REFUSALS)


def test_the_queue_is_explained_with_place_and_time():
    words = explain(request(1, reason="no_capacity"), POLICY, position=3, expected=at(60))
    assert words.sentence == (
        "All GPUs of this class are in use. You are number 3 in the queue. "
        f"Expected at {instant(at(60))}."
    )
    assert words.numbers["position"] == 3
    spread = {"position": 3, "expected": at(60), "between": (at(30), at(120))}
    words = explain(request(1, reason="no_capacity"), POLICY, **spread)
    assert words.sentence.endswith(
        f" Expected at {instant(at(60))}; 8 of 10 such requests start between "
        f"{instant(at(30))} and {instant(at(120))}."
    )
    unsure = explain(request(1, reason="no_capacity"), POLICY, position=1)
    assert unsure.sentence.endswith("You are next. No estimate yet.")


def test_a_warning_says_why_and_until_when():
    assert "not been used for 5 min" in explain(warned(1), POLICY).sentence
    assert "not been used for 2 min" in explain(warned(1, nominated_for="r2"), POLICY).sentence
    assert "14:00:30" in explain(warned(1), POLICY).sentence


@pytest.mark.parametrize("said", sorted(reasons.PROGRESS))
def test_a_start_says_what_it_meets_while_its_stage_stays(said):
    pulling = starting(1, reason="pulling")
    words = explain(pulling, policy(), said=said).sentence
    assert words == f"{explain(pulling, policy()).sentence} {reasons.PROGRESS[said]}".strip()
    assert explain(active(1), policy(), said=said) == explain(active(1), policy())


def test_an_admins_note_is_shown_as_it_was_written():
    ended = lifecycle.force_end(request(1), NOW, OUTS, "no {idle} today")
    assert explain(ended, POLICY).sentence.endswith("They wrote: no {idle} today")


# Places and expectations


def test_position_counts_those_who_start_when_their_turn_comes():
    """Whose server does not run, or who has as many as one may have, stands in nobody's way."""
    view = snapshot(
        [
            active(1, user="ann"),
            *(request(n, user="ann", server=f"s{n}") for n in (2, 3, 4)),
            *(request(n, server_ready=False) for n in (5, 6)),
            request(7),
            request(8),
        ],
        1,
        policy=policy(leases_per_user=2),
    )
    places = {n: position(view, f"r{n}") for n in range(2, 9)}
    assert places == {2: 1, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 3}


def test_position_counts_the_own_pool_only():
    view = snapshot([request(1), request(2, gpu_class="slice"), request(3), active(4)])
    assert [position(view, f"r{n}") for n in (1, 2, 3, 4, 9)] == [1, 1, 2, None, None]


def start_in(view, lease_id="r9"):
    when = expected_start(view, lease_id)
    return None if when is None else (when - NOW).total_seconds()


def test_when_one_more_may_start_is_known_before_anybody_asks():
    assert next_starts(snapshot([], 1)) == {"cards": NOW}
    full = snapshot([draining(0, left=2)], 1)
    assert next_starts(full) == {"cards": at(2)}
    behind = snapshot([draining(0, left=2), request(9, reason="no_capacity")], 1)
    assert next_starts(behind) == {}, "who waits takes what is known to come free"


WAITING = request(9, reason="no_capacity")


@pytest.mark.parametrize(
    ("holder", "evidence", "typical", "seconds"),
    [
        (draining(0), None, None, 6),
        (draining(0, left=2), None, None, 2),
        (warned(0), idle(400), None, 36),
        (active(0), idle(100), None, 200 + 60 + 6),
        (active(0), quiet(800), None, 100 + 60 + 6),
        (active(0), busy(), None, None),
        (active(0), unknown(50), None, None),
        (active(0), None, None, None),
        (active(0, wanted=9000.0), busy(), None, 7200),
        (active(0), busy(), 2000.0, 200),
        (active(0), busy(), 1000.0, None),
        (active(0, kept_until=at(500)), idle(400), None, 500 + 60 + 6),
        (starting(0), None, None, None),
        (starting(0), None, 600.0, 600),
    ],
)
def test_when_one_is_next(holder, evidence, typical, seconds):
    view = snapshot(
        [holder, WAITING], evidence={"r0": evidence} if evidence else {}, typical_length=typical
    )
    assert start_in(view) == seconds


def test_the_line_takes_what_comes_free_first():
    leases = [warned(0, left=10), warned(1, left=50), active(2), request(7), request(8), WAITING]
    evidence = {"r0": idle(400), "r1": idle(400), "r2": busy()}
    view = snapshot(leases, 3, evidence)
    assert [start_in(view, f"r{n}") for n in (7, 8, 9)] == [16, 56, None]


def test_a_large_request_waits_for_its_last_device():
    leases = [warned(0, left=10), warned(1, left=50), request(9, count=2)]
    assert start_in(snapshot(leases, 2, {"r0": idle(400), "r1": idle(400)})) == 56


def test_a_device_nobody_may_have_is_not_expected():
    view = snapshot([warned(0, left=10), WAITING], cards(1, healthy=False), {"r0": idle(400)})
    assert start_in(view) is None


def test_what_waits_for_something_else_is_not_expected_and_stands_in_nobodys_way():
    leases = [warned(0, left=10), request(8, server_ready=False), WAITING]
    view = snapshot(leases, 1, {"r0": idle(400)})
    assert [start_in(view, "r8"), start_in(view)] == [None, 16]


def test_a_back_off_is_waited_for():
    assert start_in(snapshot([request(9, not_before=at(30), failures=1)])) == 30


def test_nothing_is_expected_of_what_is_not_known():
    assert start_in(snapshot([WAITING], capacity_known=False)) is None
    assert start_in(snapshot([active(0)], evidence={"r0": busy()})) is None


def test_no_end_is_expected_after_the_hard_end():
    lease = active(0, hard_end=at(50))
    view = snapshot([lease], evidence={"r0": idle(10)}, typical_length=99_999.0)
    assert expected_end(view, lease) == at(50)


def test_no_end_is_expected_before_a_keep_is_over_unless_the_holder_named_it():
    kept = active(0, kept_until=at(900))
    view = snapshot([kept], evidence={"r0": busy()}, typical_length=2000.0)  # in 200 s, without it
    assert expected_end(view, kept) == at(900)
    longer = snapshot([kept], evidence={"r0": busy()}, typical_length=7200.0)
    assert expected_end(longer, kept) == at(5400)
    named = active(0, kept_until=at(900), wanted=300.0, hard_end=at(300))
    assert expected_end(snapshot([named], evidence={"r0": busy()}), named) == at(300)


def test_a_quiet_lease_whose_cell_is_over_is_warned_by_the_idle_time_out():
    lease = active(0)
    over = replace(quiet(100), cells=0)
    assert warned_at(lease, over, None, NOW, OUTS) == at(OUTS.idle)
    assert warned_at(lease, quiet(100), None, NOW, OUTS) == at(OUTS.quiet - 100)


@cache
def calls() -> list[ast.Call]:
    """Return the calls that the planner's code makes."""
    trees = [
        ast.parse(f.read_text()) for f in Path(gpulease.__file__).parent.glob("policy/**/*.py")
    ]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def codes_of(action: str) -> set[str]:
    """Return the reason codes that the planner's code gives this action."""
    made = [each for each in calls() if getattr(each.func, "id", "") == action]
    found = [each for call in made for each in ast.walk(call.args[1])]
    return {each.value for each in found if isinstance(each, ast.Constant)} - {""}


def recorded() -> set[str]:
    """Return the codes that the audit holds."""
    return {reason for row in TRANSITIONS for reason in row.reasons} | {
        "asked", "adopted", "claimed", "groups_changed", "server_ready", "server_gone",
        "done", "parked", "blocked", "gone", *codes_of("End"), *codes_of("Requeue"),
    }  # fmt: skip


def test_the_codes_of_ends_are_found() -> None:
    assert {"drain_timeout", "unknown_class", "server_gone"} <= codes_of("End")


def test_a_reader_of_the_audit_reads_a_sentence_that_is_not_said_to_the_holder() -> None:
    for code in sorted(recorded()):
        said = audited(code)
        assert said.endswith(".")
        assert "{" not in said
        assert not re.search(r"\byou", said, re.IGNORECASE)
        assert all(Text(said).known(catalogue(language)) for language in ("de", "fr"))
