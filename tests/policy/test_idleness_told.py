"""When a lease is warned as unused, and what its holder and an admin read: a table of all cases.

What is expected is the contract's rule in words of its own; nothing of the rule's code is used.
"""

from itertools import product

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.explanation.decision import decision
from gpulease.policy.explanation.explain import explain
from gpulease.policy.model import Evidence, Verdict, Warn
from gpulease.policy.planner import plan
from gpulease.texts import instant
from tests.policy.build import NOW, OUTS, active, at, policy, request, seen, snapshot

BUSY, QUIET, IDLE, UNKNOWN = Verdict.BUSY, Verdict.QUIET, Verdict.IDLE, Verdict.UNKNOWN
#: Two minutes are enough while somebody waits, five if not; fifteen for a cell that does nothing.
TWO, FIVE, FIFTEEN = 120.0, 300.0, 900.0
#: Seconds for which nothing has been heard; up to five minutes it counts as nothing at all.
SILENT = 400.0

VERDICTS = (BUSY, QUIET, IDLE, UNKNOWN)
IDLE_FOR = (0.0, TWO - 1, TWO, FIVE - 1, FIVE)
QUIET_FOR = (0.0, FIFTEEN - SILENT + FIVE - 1, FIFTEEN - SILENT + FIVE, FIFTEEN - 1, FIFTEEN)
CASES = [
    (verdict, idle, max(idle, quiet), waits, kept)
    for verdict, idle, quiet, waits, kept in product(
        VERDICTS, IDLE_FOR, QUIET_FOR, (False, True), (False, True)
    )
]
TOLD = {
    "idle": "The GPU has not been used for {limit}.",
    "quiet": "The GPU has not been used for 15 min, though a cell ran meanwhile.",
    "no_data": "There has been no data on this GPU's use for long, and somebody is waiting.",
}


def rule(verdict: Verdict, idle: float, quiet: float, waits: bool, kept: bool) -> str:
    if kept or verdict is BUSY:
        return ""
    if verdict is UNKNOWN:
        return "no_data" if waits and quiet + SILENT - FIVE >= FIFTEEN else ""
    if verdict is IDLE and idle >= (TWO if waits else FIVE):
        return "idle"
    return "quiet" if quiet >= FIFTEEN else ""


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict.value)
def test_when_it_is_warned_and_what_is_said(verdict: Verdict) -> None:
    cases = [case for case in CASES if case[0] is verdict]
    assert len(cases) == 100
    for case in cases:
        _, idle, quiet, waits, kept = case
        lease = active(0, kept_until=at(60) if kept else None)
        silent = at(-SILENT) if verdict is UNKNOWN else None
        evidence = Evidence(verdict, at(-SILENT), idle, quiet, silent, before=verdict)
        leases = [lease, request(1)] if waits else [lease]
        view = snapshot(leases, 1, {lease.id: evidence}, [seen(lease, in_use=True)])
        actions = plan(view)
        mine = [each for each in actions if isinstance(each, Warn)]
        assert [each.reason for each in mine] == [each for each in [rule(*case)] if each], case

        told = decision(view, lease, next((x for x in actions if x.lease_id == lease.id), None))
        assert told.numbers["verdict"] == verdict.value
        assert (told.numbers["idle"], told.numbers["quiet"]) == (idle, quiet)
        for warning in mine:
            assert warning.until == at(OUTS.warning)
            assert (warning.nominated_for == "r1") is waits
            assert told.numbers["idle_limit"] == (TWO if waits else FIVE)
            after = lifecycle.apply(lease, warning, NOW, OUTS)
            limit = "2 min" if waits else "5 min"
            said = explain(after, policy())
            assert said.sentence.startswith(TOLD[warning.reason].format(limit=limit)), case
            assert said.sentence.endswith(f"It is released at {instant(at(60))}.")
            assert "Keep" in said.next_step
