"""However samples arrive, a lease counts as what was done there: stories times ways of arriving.

What is expected is worked out beside the rule: from what happened in each second, five by five.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from gpulease.policy.idleness import ActivitySample, DeviceSample, advance, begin
from gpulease.policy.model import Evidence, TimeOuts, Verdict
from tests.policy.build import NOW, at

OUTS = TimeOuts(warm_up=0)
BUSY, QUIET, IDLE, GAP = Verdict.BUSY, Verdict.QUIET, Verdict.IDLE, Verdict.UNKNOWN
#: Seconds of one stretch: longer than what a sample speaks for.
LONG = 20
#: A look at the evidence each so many seconds.
LOOK = 5
#: What was done in each of three stretches: all 64.
STORIES = list(product((BUSY, QUIET, IDLE, GAP), repeat=3))

Sample = tuple[int, Verdict]  # of a second, what was done in it
#: Samples of a story in -> what arrives at each look, by its second.
Way = Callable[[list[Sample]], Iterator[tuple[int, list[Sample]]]]


def seconds(story: tuple[Verdict, ...]) -> list[Sample]:
    """One sample a second; in a gap there is none."""
    done = [kind for kind in story for _ in range(LONG)]
    return [(second, kind) for second, kind in enumerate(done, 1) if kind is not GAP]


def looks(samples: list[Sample], every: int, late: int = 0) -> Iterator[tuple[int, list[Sample]]]:
    for now in range(every, 3 * LONG + 1, every):
        yield now, [x for x in samples if now - every < x[0] + late <= now]


def in_time(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    return looks(samples, LOOK)


def in_batches(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    return looks(samples, 2 * LOOK)


def out_of_order(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    pick = random.Random(len(samples))
    for now, came in looks(samples, 2 * LOOK):
        yield now, pick.sample(came, len(came))


def again_and_again(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    before: list[Sample] = []
    for now, came in in_time(samples):
        yield now, [*came, *before, *came]
        before = came


def with_losses(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    return in_time([x for x in samples if x[0] % LOOK == 0])


def with_a_clock_that_steps_back(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    for now, came in in_time(samples):
        yield now, came
        yield now - 30, []


WAYS: tuple[Way, ...] = (
    in_time, in_batches, out_of_order, again_and_again, with_losses, with_a_clock_that_steps_back,
)  # fmt: skip


#: A clock that was behind is set right: after this second it is an hour later.
SET_AT, HOUR = 40, 3600


def with_a_clock_that_is_set_forward(samples: list[Sample]) -> Iterator[tuple[int, list[Sample]]]:
    for now, came in in_time(samples):
        yield now + HOUR * (now > SET_AT), [(s + HOUR * (s > SET_AT), kind) for s, kind in came]


def counted(arriving: Iterator[tuple[int, list[Sample]]]) -> Evidence:
    state = begin(NOW)
    for now, came in arriving:
        state = advance(
            state,
            [DeviceSample(at(second), 0.9 if kind is BUSY else 0.0) for second, kind in came],
            [ActivitySample(at(second), int(kind is not IDLE)) for second, kind in came],
            at(now),
            time_outs=OUTS,
            active_since=NOW,
        )
    return state.evidence


def expected(story: tuple[Verdict, ...], forgets: int = 0) -> tuple[Verdict, float, float]:
    """The strongest of the last ten seconds counts; a gap pauses, busy starts again.

    What was before ``forgets`` counts no more once that second is over.
    """
    done, idle, quiet, verdict = dict(seconds(story)), 0, 0, GAP
    for now in range(LOOK, 3 * LONG + 1, LOOK):
        first = max(now - 9, forgets + 1 if now > forgets else 0)
        window = {done[second] for second in range(first, now + 1) if second in done}
        verdict = next((kind for kind in (BUSY, QUIET, IDLE) if kind in window), GAP)
        if verdict in (BUSY, QUIET):
            idle = 0
        if verdict is BUSY:
            quiet = 0
        idle += LOOK * (verdict is IDLE)
        quiet += LOOK * (verdict in (QUIET, IDLE))
    return verdict, float(idle), float(quiet)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_however_samples_arrive_the_same_counts(way: Way):
    for story in STORIES:
        found = counted(way(seconds(story)))
        assert (found.verdict, found.idle_for, found.quiet_for) == expected(story), story


def test_an_hour_that_no_clock_saw_counts_for_nothing():
    """What was sampled before is too old then, so a last use lasts no ten seconds more."""
    for story in STORIES:
        found = counted(with_a_clock_that_is_set_forward(seconds(story)))
        wanted = expected(story, forgets=SET_AT)
        assert (found.verdict, found.idle_for, found.quiet_for) == wanted, story


def test_samples_that_come_a_little_late_count_less_and_never_more():
    """Each beginning is seen a look later: that is time in which nothing was known."""
    for story in STORIES:
        found = counted(looks(seconds(story), LOOK, late=LOOK))
        verdict, idle, quiet = expected(story)
        if found.verdict is verdict:
            assert 0 <= idle - found.idle_for <= LOOK * len(story), story
            assert 0 <= quiet - found.quiet_for <= LOOK * len(story), story


def test_what_comes_too_late_to_be_judged_neither_takes_nor_keeps():
    """A burst of which is heard a minute later: the stretch since then stands."""
    idle = [(second, IDLE) for second in range(1, 81)]
    burst = [(second, BUSY) for second in range(5, 10)]
    late = ((now, [*came, *(burst if now == 70 else [])]) for now, came in looks(idle, LOOK))
    assert counted(late) == counted(looks(idle, LOOK))
