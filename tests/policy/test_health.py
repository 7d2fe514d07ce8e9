"""Leases that connect, fail, die or lose their device."""

from dataclasses import replace

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.health import BACK_OFF, MAX_FAILURES
from gpulease.policy.idleness import WINDOW
from gpulease.policy.model import Activate, Drain, End, EndReason, LeaseState, Requeue, Start
from gpulease.policy.planner import plan
from tests.policy.build import (
    NOW,
    OUTS,
    active,
    at,
    busy,
    cards,
    draining,
    policy,
    seen,
    snapshot,
    starting,
    unknown,
    warned,
)


def test_a_connected_lease_becomes_active():
    lease = starting(0)
    assert plan(snapshot([lease], observed=[seen(lease)])) == [Activate("r0", "connected")]


def test_a_longer_length_since_the_start_never_outlives_what_runs():
    """The policy was changed between the start and the connection."""
    lease, longer = starting(1), replace(OUTS, hard_length=10 * OUTS.hard_length)
    told = policy(longer)
    view = snapshot([lease], 2, observed=[seen(lease, ends=at(4000))], policy=told)
    (action,) = plan(view)
    assert lifecycle.apply(lease, action, NOW, longer).hard_end == at(4000)
    (free,) = plan(replace(view, observed={lease.id: seen(lease)}))
    assert lifecycle.apply(lease, free, NOW, longer).hard_end == at(longer.hard_length)
    (short,) = plan(view)
    brief = replace(OUTS, hard_length=600)
    assert lifecycle.apply(lease, short, NOW, brief).hard_end == at(600)


def test_an_older_attempts_supervisor_does_not_count():
    lease = starting(0, attempt=2)
    assert plan(snapshot([lease], observed=[seen(lease, attempt=1)])) == []


@pytest.mark.parametrize(
    ("observed", "reason", "failure"),
    [
        ({"failed": "supervisor_failed"}, "supervisor_failed", True),
        ({"failed": "image_error"}, "image_error", True),
        ({"failed": "No module named gpulease"}, "supervisor_failed", True),
        ({"failed": "capacity_taken"}, "capacity_taken", False),
        ({"failed": "evicted"}, "evicted", False),
        ({"failed": "no_gpulease"}, "no_gpulease", True),
        ({"failed": "other_version"}, "other_version", True),
        ({"gone": True}, "supervisor_failed", True),
    ],
)
def test_a_failed_start_goes_back_to_the_queue(observed, reason, failure):
    lease = starting(0)
    view = snapshot([lease], observed=[seen(lease, connected=False, **observed)])
    assert plan(view) == [Requeue("r0", reason, at(BACK_OFF), failure)]


def test_a_start_has_a_bound():
    assert plan(snapshot([starting(0, state_since=at(1 - OUTS.start_max))])) == []
    late = starting(0, state_since=at(-OUTS.start_max))
    assert plan(snapshot([late])) == [Requeue("r0", "start_timeout", at(BACK_OFF))]


@pytest.mark.parametrize(("reason", "seconds"), [("quota_exceeded", 30), ("volume_failed", 1)])
def test_what_others_must_end_is_waited_for_as_long_as_that_takes(reason, seconds):
    lease = starting(0)
    view = snapshot([lease], observed=[seen(lease, connected=False, failed=reason)])
    assert plan(view) == [Requeue("r0", reason, at(seconds), False)]


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [
        ("node_lost", [5, 10, 20, 40, 60, 60]),
        ("evicted", [5, 10, 20, 40, 60, 60]),
        ("quota_exceeded", [30] * 6),
        ("volume_failed", [1] * 6),
        # Its place was waited for already, and others' requests would pass it.
        ("capacity_taken", [5] * 6),
    ],
)
def test_what_others_do_again_and_again_is_tried_less_and_less_often(reason, seconds):
    lease, waits = starting(0), []
    for _ in seconds:
        observed = [seen(lease, connected=False, failed=reason)]
        (back,) = plan(snapshot([lease], observed=observed))
        waits.append((back.not_before - NOW).total_seconds())
        assert back.failure is False
        queued = lifecycle.apply(lease, back, NOW, OUTS)
        lease = lifecycle.apply(queued, Start("r0", "starting", ("GPU-0",)), NOW, OUTS)
    assert waits == seconds
    ever = replace(lease, attempt=10_000)
    (back,) = plan(snapshot([ever], observed=[seen(ever, connected=False, failed=reason)]))
    assert (back.not_before - NOW).total_seconds() == seconds[-1]


@pytest.mark.parametrize(
    ("failed", "reason"), [("out_of_memory", "out_of_memory"), ("", "gone"), ("ended", "gone")]
)
def test_a_lease_whose_pod_is_over_ends_with_what_is_known_of_it(failed, reason):
    lease = active(0)
    view = snapshot([lease], observed=[seen(lease, gone=True, connected=False, failed=failed)])
    assert End("r0", reason, EndReason.FAILED) in plan(view)


def test_what_the_provider_says_of_a_start_is_kept_until_the_next():
    lease = starting(0)
    said = seen(lease, connected=False, failed="image_error", detail="no such image: a.test/b")
    (action,) = plan(snapshot([lease], observed=[said]))
    back = lifecycle.apply(lease, action, NOW, OUTS)
    assert (back.state, back.detail) == (LeaseState.QUEUED, "no such image: a.test/b")
    assert lifecycle.apply(back, Start("r0", "starting", ("GPU-0",)), NOW, OUTS).detail == ""
    (up,) = plan(snapshot([lease], observed=[seen(lease, detail="Files: mount.")]))
    assert lifecycle.apply(lease, up, NOW, OUTS).detail == "Files: mount."


def test_back_off_doubles_and_ends():
    lease = starting(0, failures=1)
    (action,) = plan(snapshot([lease], observed=[seen(lease, failed="image_error")]))
    assert action.not_before == at(2 * BACK_OFF)
    last = starting(0, failures=MAX_FAILURES - 1)
    view = snapshot([last], observed=[seen(last, failed="image_error")])
    assert plan(view) == [End("r0", "image_error", EndReason.FAILED)]


def test_losing_a_race_never_ends_a_request():
    lease = starting(0, failures=MAX_FAILURES - 1)
    view = snapshot([lease], observed=[seen(lease, connected=False, failed="capacity_taken")])
    assert isinstance(plan(view)[0], Requeue)


@pytest.mark.parametrize("lease", [active(0), warned(0)])
def test_a_supervisor_that_dies_ends_its_lease(lease):
    view = snapshot([lease], evidence={"r0": busy()}, observed=[seen(lease, gone=True)])
    (action,) = plan(view)
    assert isinstance(action, End)
    assert action.end_reason is (lease.end_reason_wanted or EndReason.FAILED)


def test_one_that_dies_while_it_drains_ends_for_what_was_asked():
    lease = draining(0, end_reason_wanted=EndReason.RETURNED, reason="returned")
    view = snapshot([lease], observed=[seen(lease, gone=True)])
    assert plan(view) == [End("r0", "gone", EndReason.RETURNED)]


def test_a_supervisor_that_is_only_not_connected_keeps_its_lease():
    """The service was restarted: cells run on."""
    lease = active(0)
    view = snapshot([lease], evidence={"r0": busy()}, observed=[seen(lease, connected=False)])
    assert plan(view) == []
    assert plan(snapshot([lease])) == []


def test_a_lease_on_a_faulty_device_is_brought_home():
    lease = active(0)
    view = snapshot([lease], cards(1, healthy=False), {"r0": busy()}, [seen(lease)])
    until = at(OUTS.drain_max + OUTS.interrupt_grace)
    assert plan(view) == [Drain("r0", "device_unhealthy", until, EndReason.FAILED, True)]


def test_a_lease_on_a_device_that_is_not_listed_any_more_is_brought_home():
    (action,) = plan(snapshot([active(0)], 0, {"r0": busy()}))
    assert action.reason == "device_lost"
    assert plan(snapshot([active(0)], 0, {"r0": busy()}, capacity_known=False)) == []


def test_a_lost_device_may_come_back():
    assert plan(snapshot([active(0)], cards(1, lost=True), {"r0": busy()})) == []


def test_a_start_on_a_faulty_device_looks_for_another():
    lease = starting(0)
    view = snapshot([lease], cards(1, lost=True), observed=[seen(lease)])
    assert plan(view) == [Requeue("r0", "device_unhealthy", at(BACK_OFF), failure=False)]


def test_a_drain_on_a_faulty_device_goes_on():
    lease = draining(0)
    assert plan(snapshot([lease], cards(1, healthy=False))) == []
    done = snapshot([lease], cards(1, healthy=False), observed=[seen(lease, drained="done")])
    assert [type(a) for a in plan(done)] == [End]


def test_what_is_observed_of_an_unknown_lease_is_ignored():
    stranger = replace(seen(active(7)), lease_id="nobody")
    assert plan(snapshot([], observed=[stranger], now=NOW)) == []


@pytest.mark.parametrize(
    ("evidence", "until"),
    [
        ({}, -600),  # nothing was heard since the service came back
        ({"r0": unknown(60)}, -600),
        ({"r0": unknown(20)}, -20 - WINDOW),  # it was heard of after that, and then not any more
        ({"r0": busy()}, None),  # it is heard of still
    ],
)
def test_what_ended_while_the_service_was_away_is_charged_until_the_service_left(evidence, until):
    """The last beat was ten minutes ago, and the service is back for a minute."""
    lease = active(0, charged_from=at(-1800))
    dead = [seen(lease, gone=True, connected=False)]
    view = snapshot([lease], evidence=evidence, observed=dead, away=(at(-600), at(-60)))
    (action,) = [each for each in plan(view) if isinstance(each, End)]
    assert action.last_seen == (None if until is None else at(until))
    ended = lifecycle.apply(lease, action, NOW, OUTS)
    assert ended.charged_until == (NOW if until is None else at(until))
    assert ended.charge_estimated == (until is not None)


def test_a_lease_that_began_after_the_service_was_away_is_none_of_that():
    lease = active(0, active_since=at(-30), charged_from=at(-30))
    dead = [seen(lease, gone=True, connected=False)]
    view = snapshot([lease], observed=dead, away=(at(-600), at(-60)))
    (action,) = [each for each in plan(view) if isinstance(each, End)]
    assert action.last_seen is None
