"""The verdict rule as a table, and the counters as stories."""

from datetime import timedelta

import pytest

from gpulease.policy.idleness import ActivitySample, DeviceSample, IdleState, advance, begin, judge
from gpulease.policy.model import EvidenceLevel, TimeOuts, Verdict
from tests.policy.build import NOW, at

OUTS = TimeOuts(idle=60, quiet=120, warm_up=5)
BUSY, QUIET, IDLE, UNKNOWN = Verdict.BUSY, Verdict.QUIET, Verdict.IDLE, Verdict.UNKNOWN


def dev(*pairs):
    return [DeviceSample(at(second), use) for second, use in pairs]


def act(*rows):
    return [ActivitySample(at(row[0]), *row[1:]) for row in rows]


NOTHING = act((-1, 0, 0, 0))
CELL = act((-1, 1))
THREAD = act((-1, 0, 1))
PROCESS = act((-1, 0, 0, 1))

TABLE = [
    ("nothing known", [], [], UNKNOWN),
    ("only the device is known", dev((-1, 0.9)), [], UNKNOWN),
    ("only the activity is known", [], CELL, UNKNOWN),
    ("the probe gives gaps", dev((-1, None), (-2, None)), CELL, UNKNOWN),
    ("gaps with nothing running hold too", dev((-1, None)), NOTHING, UNKNOWN),
    ("one gap beside a sample", dev((-1, None), (-2, 0.5)), act((-2, 1)), BUSY),
    ("samples are too old", dev((-11, 0.9)), act((-11, 1)), UNKNOWN),
    ("a sample exactly at the window's edge", dev((-10, 0.9)), act((-10, 1)), UNKNOWN),
    ("a sample just inside", dev((-9.9, 0.9)), act((-9.9, 1)), BUSY),
    ("samples of the future say nothing", dev((1, 0.9)), act((1, 1)), UNKNOWN),
    ("a cell computes", dev((-1, 0.5)), CELL, BUSY),
    ("a thread computes after its cell", dev((-1, 0.5)), THREAD, BUSY),
    ("a process computes", dev((-1, 0.5)), PROCESS, BUSY),
    ("use without anything of the user's", dev((-1, 0.9)), NOTHING, IDLE),
    ("exactly at the threshold is not use", dev((-1, 0.03)), CELL, QUIET),
    ("just above the threshold", dev((-1, 0.031)), CELL, BUSY),
    ("a cell sleeps", dev((-1, 0.0)), CELL, QUIET),
    ("a sleeping thread is idle", dev((-1, 0.0)), THREAD, IDLE),
    ("a sleeping process is idle", dev((-1, 0.0)), PROCESS, IDLE),
    ("nothing at all", dev((-1, 0.0)), NOTHING, IDLE),
    ("the peak of the window decides", dev((-9, 0.5), (-1, 0.0)), act((-9, 1), (-1, 1)), BUSY),
    ("use while the cell lived", dev((-8, 0.5), (-1, 0.0)), act((-8, 1), (-1, 0)), BUSY),
    ("use long after the cell ended", dev((-1, 0.5)), act((-9, 1), (-1, 0)), QUIET),
    ("a short cell in the window", dev((-1, 0.0)), act((-6, 1), (-1, 0)), QUIET),
]  # fmt: skip

CELLS_TABLE = [
    ("a cell without device data", [], CELL, BUSY),
    ("a cell with use", dev((-1, 0.5)), CELL, BUSY),
    ("device data shortens", dev((-1, 0.0)), CELL, QUIET),
    ("gaps do not shorten", dev((-1, None)), CELL, BUSY),
    ("somebody else's use protects nobody", dev((-1, 0.9)), NOTHING, IDLE),
    ("a thread is no cell", dev((-1, 0.9)), THREAD, IDLE),
    ("no activity known", dev((-1, 0.9)), [], UNKNOWN),
]


@pytest.mark.parametrize(("device", "activity", "verdict"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_verdict(device, activity, verdict):
    assert judge(device, activity, NOW) is verdict
    assert judge(device[::-1], activity[::-1], NOW) is verdict


@pytest.mark.parametrize(("device", "activity", "verdict"), [row[1:] for row in CELLS_TABLE],
                         ids=[row[0] for row in CELLS_TABLE])  # fmt: skip
def test_verdict_where_the_device_cannot_be_attributed(device, activity, verdict):
    assert judge(device, activity, NOW, EvidenceLevel.CELLS) is verdict


def live(state: IdleState, seconds: int, use: float | None, cells: int = 0, threads: int = 0,
         outs: TimeOuts = OUTS, active_for: float = 1000) -> IdleState:  # fmt: skip
    """Go on second by second, as the service does."""
    for _ in range(seconds):
        now = state.at + timedelta(seconds=1)
        state = advance(
            state,
            [DeviceSample(now, use)],
            [ActivitySample(now, cells, threads)],
            now,
            time_outs=outs,
            active_since=at(-active_for),
        )
    return state


def test_idle_counts_once_the_window_is_clear():
    state = live(live(begin(NOW), 5, 0.5, cells=1), 40, 0.0)
    # The last use stays in the window for ten seconds (the cell with it).
    assert state.evidence.verdict is IDLE
    assert state.evidence.idle_for == 40 - 9
    assert state.evidence.before is BUSY


def test_busy_resets_both():
    state = live(live(begin(NOW), 100, 0.0, cells=1), 1, 0.5, cells=1)
    assert (state.evidence.idle_for, state.evidence.quiet_for) == (0, 0)


def test_quiet_and_idle_together_count_as_quiet():
    state = live(live(begin(NOW), 50, 0.0, cells=1), 30, 0.0)
    assert state.evidence.quiet_for == 80
    assert state.evidence.idle_for == 30 - 9


def test_a_cell_interrupts_the_idle_stretch():
    state = live(live(begin(NOW), 50, 0.0), 1, 0.0, cells=1)
    assert (state.evidence.idle_for, state.evidence.quiet_for) == (0, 51)


def test_unknown_pauses_both_and_says_since_when():
    state = live(begin(NOW), 30, 0.0)
    paused = live(state, 100, None)
    assert paused.evidence.verdict is UNKNOWN
    # The last sample is good for the window, then the count stands still.
    assert paused.evidence.idle_for == 30 + 9
    assert paused.evidence.unknown_since == at(40)
    resumed = live(paused, 10, 0.0)
    assert resumed.evidence.idle_for == 30 + 9 + 10
    assert resumed.evidence.unknown_since is None


def test_warm_up_counts_for_neither():
    state = live(begin(NOW), 20, 0.0, outs=TimeOuts(warm_up=15), active_for=0)
    assert (state.evidence.idle_for, state.evidence.quiet_for) == (5, 5)


def test_a_lease_that_is_not_active_counts_nothing():
    state = begin(NOW)
    samples = [DeviceSample(at(9), 0.0)], [ActivitySample(at(9), 0)]
    state = advance(state, *samples, at(10), time_outs=OUTS, active_since=None)
    assert state.evidence.verdict is IDLE
    assert state.evidence.idle_for == 0


def test_a_batch_that_comes_late_is_judged_in_steps():
    """Ten seconds of use in the middle of a late batch are not overlooked."""
    device = [DeviceSample(at(n), 0.5 if 20 <= n < 23 else 0.0) for n in range(1, 41)]
    activity = [ActivitySample(at(n), 1 if 20 <= n < 23 else 0) for n in range(1, 41)]
    state = advance(begin(NOW), device, activity, at(40), time_outs=OUTS, active_since=at(-999))
    assert state.evidence.verdict is IDLE
    assert state.evidence.idle_for <= 10


def test_the_time_the_service_was_down_does_not_count():
    state = live(begin(NOW), 30, 0.0)
    later = state.at + timedelta(hours=2)
    state = advance(state, [DeviceSample(later, 0.0)], [ActivitySample(later, 0)], later,
                    time_outs=OUTS, active_since=at(-999))  # fmt: skip
    assert state.evidence.idle_for < 30 + 20


def test_a_clock_that_goes_backwards_changes_no_count():
    state = live(begin(NOW), 30, 0.0)
    back = advance(state, [], [], at(10), time_outs=OUTS, active_since=at(-999))
    assert back.evidence == state.evidence


def test_the_utilisation_shown_is_the_peak_and_none_without_data():
    state = live(begin(NOW), 3, 0.7, cells=1)
    assert live(state, 5, 0.1).evidence.utilisation == 0.7
    assert live(state, 11, None).evidence.utilisation is None


def test_a_flickering_probe_neither_takes_nor_keeps():
    """One valid sample in nine seconds is enough to know."""
    state = begin(NOW)
    for _ in range(10):
        state = live(live(state, 8, None), 1, 0.0)
    assert state.evidence.idle_for >= 70


def test_samples_do_not_pile_up():
    state = live(begin(NOW), 500, 0.1, cells=1)
    assert len(state.device) <= 11
    assert len(state.activity) <= 11


def _busy_story(until, **more):
    """A cell that computes without interruption, told every second."""
    outs = TimeOuts(idle=60, quiet=120, warm_up=0, busy_max=300)
    state = begin(at(0))
    for second in range(1, until + 1):
        state = advance(
            state, dev((second, 0.9)), act((second, 1)), at(second),
            time_outs=outs, active_since=at(0), **more,
        )  # fmt: skip
    return state


def test_the_companions_word_alone_is_use_until_busy_max_and_quiet_from_then():
    for by_word in ({"simulated": True}, {"level": EvidenceLevel.CELLS}):
        before = _busy_story(300, **by_word).evidence
        assert (before.verdict, before.quiet_for) == (BUSY, 0)
        after = _busy_story(421, **by_word).evidence
        assert (after.verdict, after.word_over, after.quiet_for) == (QUIET, True, 121)
        assert after.since == at(301)
    assert _busy_story(421).evidence.verdict is BUSY


def test_a_pause_begins_busy_max_anew_and_a_gap_does_not():
    outs = TimeOuts(idle=600, quiet=1200, warm_up=0, busy_max=300)
    for pause, verdict in ((act((305, 0), (315, 0)), BUSY), ([], QUIET)):
        state = _busy_story(290, simulated=True)
        device = dev((305, 0.0), (315, 0.0)) if pause else []
        state = advance(
            state, device, pause, at(320), time_outs=outs, active_since=at(0), simulated=True
        )
        state = advance(
            state, dev((321, 0.9)), act((321, 1)), at(322),
            time_outs=outs, active_since=at(0), simulated=True,
        )  # fmt: skip
        assert state.evidence.verdict is verdict
