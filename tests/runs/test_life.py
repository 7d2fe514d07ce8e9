"""A run's life: the table, what one look decides, and that nothing that fails is tried for ever."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.runs import life, model, sentences
from gpulease.runs.life import FAULTS, TABLE, Errand, Report
from gpulease.runs.model import OnLoss, Run, RunOutcome, RunState, ServerSeen, Terms
from gpulease.store import runs as stored

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
TERMS = Terms()
UP = ServerSeen(ready=True)


def run(number: int = 1, **changed: object) -> Run:
    values = {
        "id": f"{number:012x}", "user": "stu", "notebook": "work/train.ipynb",
        "created": NOW + timedelta(seconds=number), "state_since": NOW,
    } | changed  # fmt: skip
    return Run(**values)  # type: ignore[arg-type]


def look(*runs: Run, servers=None, asked=None, after: float = 60, terms: Terms = TERMS):
    """Return the runs after one look, by number."""
    now = NOW + timedelta(seconds=after)
    changed = {each.id: each for each in life.look(runs, servers or {}, asked or {}, now, terms)}
    return [changed.get(each.id, each) for each in runs]


def started(one: Run) -> Run:
    (after,) = look(one)
    assert after.state is RunState.STARTING
    return after


def running(one: Run) -> Run:
    return life.heard(started(one), Report("b1", cells=5, done=2), NOW, TERMS)


def test_a_persons_runs_begin_in_their_order_and_no_more_at_once_than_they_may():
    runs = look(run(3), run(1), run(2), run(4, user="eve"))
    assert [each.state.value for each in runs] == ["waiting", "starting", "starting", "starting"]
    assert runs[0].reason == "run_limit"


def test_a_run_follows_others_that_succeeded_and_is_skipped_after_one_that_did_not():
    first, second = run(1), run(2, after=("000000000001",))
    assert look(first, second)[1].reason == "after"
    done = running(first)
    good = life.heard(done, Report("b1", "succeeded"), NOW, TERMS)
    assert look(good, second)[1].state is RunState.STARTING
    bad = life.heard(done, Report("b1", "notebook_error", note="Cell 3: boom"), NOW, TERMS)
    assert look(bad, second)[1].outcome is RunOutcome.SKIPPED
    assert look(life.cancel(first, first.user, NOW), second)[1].outcome is RunOutcome.SKIPPED


def test_a_server_is_asked_for_once_an_attempt_and_again_by_a_service_that_was_restarted():
    one = started(run())
    assert life.errand(one, None, {}) is Errand.START
    assert life.errand(one, None, {one.id: 1}) is Errand.NONE
    assert life.errand(one, UP, {}) is Errand.NONE
    (failed,) = look(one, asked={one.id: 1})
    assert (failed.state, failed.reason) == (RunState.WAITING, "server_failed")


def test_what_is_over_or_waits_again_has_its_server_removed_before_it_may_start():
    (gone,) = look(running(run()))
    assert (gone.state, gone.reason) == (RunState.WAITING, "server_gone")
    assert life.errand(gone, None, {}) is Errand.REMOVE
    assert look(gone, after=7200)[0] is gone, "its old server is still there"
    assert look(replace(gone, cleared=True), after=7200)[0].attempt == 2
    assert look(replace(gone, cleared=True), after=61)[0].state is RunState.WAITING, "it pauses"


def test_a_fault_is_tried_again_a_few_times_and_the_notebooks_own_error_never():
    one = run()
    for attempt in range(TERMS.attempts):
        one = replace(running(replace(one, cleared=True, not_before=None)), state_since=NOW)
        assert one.attempt == attempt + 1
        (one,) = look(one)
    assert (one.state, one.outcome) == (RunState.ENDED, RunOutcome.FAILED)
    assert "given up after 3 attempts" in sentences.sentence(one)
    own = life.heard(running(run()), Report("b1", "notebook_error"), NOW, TERMS)
    assert own.state is RunState.ENDED


def test_a_cell_that_outlives_the_time_of_its_gpu_is_not_tried_again():
    over = life.heard(running(run()), Report("b1", "gpu_time_over"), NOW, TERMS)
    assert (over.state, over.outcome) == (RunState.ENDED, RunOutcome.FAILED)
    taken = life.heard(running(run()), Report("b1", "interrupted"), NOW, TERMS)
    assert taken.state is RunState.WAITING, "somebody else needed it: that may go well next time"
    lost = life.heard(running(run()), Report("b1", "gpu_lost"), NOW, TERMS)
    assert lost.state is RunState.WAITING, "no fault of the notebook's"
    assert "tried again: its GPU, or the process on it, failed" in sentences.sentence(lost)
    assert "shorter ones" in sentences.next_step(over, "x.ipynb")


@pytest.mark.parametrize(
    ("on_loss", "state"), [(OnLoss.FAIL, RunState.ENDED), (OnLoss.RESTART, RunState.WAITING)]
)
def test_what_follows_a_dead_kernel_is_the_persons_choice(on_loss, state):
    dead = life.heard(running(run(on_loss=on_loss)), Report("b1", "kernel_died"), NOW, TERMS)
    assert (dead.state, dead.reason) == (state, "kernel_died")


def test_a_server_that_was_started_anew_begins_the_notebook_again():
    again = life.heard(running(run()), Report("b2", cells=5), NOW, TERMS)
    assert (again.state, again.boot, again.attempt, again.done) == (RunState.RUNNING, "b2", 2, 0)


@pytest.mark.parametrize("reason", sorted({*FAULTS, "kernel_died"}))
def test_a_run_says_what_failed_until_it_is_tried_again(reason):
    waits = life.fault(running(run()), reason, "Cell 2 was cut off.", NOW, TERMS)
    (cleared,) = look(replace(waits, cleared=True), after=1)
    assert (cleared.reason, cleared.note) == (reason, "Cell 2 was cut off.")
    (again,) = look(cleared, after=3600)
    assert (again.state, again.note) == (RunState.STARTING, "")


def test_a_cancelled_run_says_nothing_of_an_earlier_fault():
    waits = life.fault(running(run()), "kernel_died", "After cell 0 of 1.", NOW, TERMS)
    assert "After cell" in sentences.sentence(waits)
    assert sentences.sentence(life.cancel(waits, waits.user, NOW)) == "It was cancelled."
    by_admin = life.cancel(waits, "ada", NOW, "Needed for a lab.")
    assert sentences.sentence(by_admin) == "An admin cancelled it. Needed for a lab."
    assert by_admin.outcome is RunOutcome.CANCELLED


@pytest.mark.parametrize("over", [run(), life.cancel(running(run()), "stu", NOW)])
def test_a_run_that_waits_or_has_ended_takes_no_reports(over):
    with pytest.raises(GPULeaseError) as caught:
        life.heard(over, Report("b1", "succeeded"), NOW, TERMS)
    assert (caught.value.reason, caught.value.status) == ("not_possible_now", 409)


def test_a_start_that_takes_too_long_is_a_fault():
    one = started(run())
    (late,) = look(one, servers={one.id: UP}, asked={one.id: 1}, after=1000)
    assert late.reason == "start_timeout"
    assert "not gpulease" in late.note


EVENTS = st.lists(
    st.sampled_from(["look", "lost", "cleared", "report", "anew", "died", "own", "good", "cancel"]),
    max_size=40,
)


@given(EVENTS, st.sampled_from(OnLoss))
def test_every_step_is_one_of_the_table_and_no_run_has_more_attempts_than_it_may(events, on_loss):
    one, now, boot = run(on_loss=on_loss), NOW, 1
    states = {
        "report": "running", "anew": "running", "died": "kernel_died", "own": "notebook_error",
        "good": "succeeded",
    }  # fmt: skip
    for event in events:
        now += timedelta(seconds=200)
        before = one
        boot += event == "anew"
        if event in ("look", "lost"):
            there = {} if event == "lost" else {one.id: UP}
            changed = life.look([one], there, {one.id: one.attempt}, now, TERMS)
            one = changed[0] if changed else one
        elif event == "cleared" and one.state not in life.BUSY:
            one = replace(one, cleared=True)
        elif event == "cancel":
            one = life.cancel(one, one.user, now)
        elif event in states and one.state in life.BUSY:
            one = life.heard(one, Report(f"b{boot}", states[event]), now, TERMS)
        # A report may begin a run and end it: two steps of the table, stored as one.
        between = (before.state, one.state) == (RunState.STARTING, RunState.ENDED)
        assert (before.state, one.state) in TABLE or before.state is one.state or between
        assert one.attempt <= TERMS.attempts
        assert (one.state is RunState.ENDED) == (one.outcome is not None) == (one.ended is not None)
        assert one.version >= before.version
        assert stored.from_json(stored.to_json(one)) == one
        assert sentences.sentence(one)
        if before.state is RunState.ENDED:
            assert replace(one, cleared=before.cleared) == before, "an end is final"


def test_every_reason_of_the_table_has_words_for_the_log():
    reasons = frozenset().union(*TABLE.values()) - {"", "cleared"}
    for reason in {*reasons, "submitted"}:
        said = sentences.happened(reason)
        assert said[0].isupper(), reason
        assert said[-1] == ".", reason


def test_names_tell_whose_they_are():
    one = run(7, array="abcdefabcdef", index=3)
    assert model.result_of(one) == "work/train.run-abcdefabcdef-3.ipynb"
    assert model.result_of(run(7)) == "work/train.run-000000000007.ipynb"
    assert model.run_of(model.server_of(one.id)) == one.id
    assert [model.run_of(each) for each in ("", "run-", "run-lab", "mine")] == [""] * 4
