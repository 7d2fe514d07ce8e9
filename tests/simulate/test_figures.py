"""The figures: quantiles with open waits, shares and evenness, and evidence worked out."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy.idleness import STEP, ActivitySample, DeviceSample, advance, begin
from gpulease.policy.model import TimeOuts, Verdict
from gpulease.simulate import evidence
from gpulease.simulate.outcome import Wait, jain, max_min, quantile
from gpulease.simulate.trace import MONDAY
from tests.helpers import draws

lengths = st.lists(st.integers(0, 500), min_size=1, max_size=40)


def over(*seconds: float) -> list[Wait]:
    return [Wait(each, over=True) for each in seconds]


@given(lengths, st.sampled_from([0.05, 0.5, 0.95]))
def test_without_open_waits_it_is_the_plain_quantile(values, share):
    found = quantile(over(*values), share)
    within = [sum(value <= each for value in values) / len(values) for each in sorted(values)]
    expected = next(v for v, part in zip(sorted(values), within, strict=True) if part >= share)
    assert found == expected


def test_the_published_example_of_an_estimate_with_losses():
    """Freireich's leukaemia trial of 1963 (6-MP): median remission 23 weeks, as always quoted."""
    lost = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    relapsed = over(6, 6, 6, 7, 10, 13, 16, 22, 23)
    waits = [*relapsed, *(Wait(each, over=False) for each in lost)]
    assert quantile(waits, 0.5) == 23


@given(lengths, lengths)
def test_an_open_wait_never_makes_the_estimate_smaller(values, still):
    plain = quantile(over(*values), 0.5)
    assert plain is not None
    longest = max([*values, *still])
    opened = [Wait(longest + each, over=False) for each in still]
    found = quantile([*over(*values), *opened], 0.5)
    assert found is None or found >= plain


def test_where_most_never_ended_nothing_is_said():
    assert quantile([Wait(5, over=True), *[Wait(100, over=False)] * 3], 0.5) is None
    assert quantile([], 0.5) is None


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 20), max_size=6), st.integers(0, 40))
def test_shares_are_max_min_fair(wanted, capacity):
    shares = max_min(wanted, capacity)
    assert sum(shares.values()) == pytest.approx(min(capacity, sum(wanted.values())))
    most = max(shares.values(), default=0)
    for key, share in shares.items():
        # Who gets less than somebody else gets all that they want.
        assert share == pytest.approx(wanted[key]) or share == pytest.approx(most)


@pytest.mark.parametrize(
    ("values", "index"),
    [([1, 1, 1], 1), ([1, 0], 0.5), ([1, 0, 0, 0], 0.25), ([], None), ([0], None)],
)
def test_evenness(values, index):
    assert jain(values) == index


@settings(max_examples=draws(6), deadline=None)
@given(
    spans=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300)), min_size=1, max_size=3),
    rest=st.integers(30, 590),  # later than that nobody watched
    warm_up=st.sampled_from([0.0, 60.0, 120.0]),
)
def test_evidence_is_what_the_samples_of_each_second_say(spans, rest, warm_up):
    outs = TimeOuts(warm_up=warm_up)
    active = MONDAY
    state = begin(active)
    now, ended = active, None
    # A GPU cell takes its GPU at once: the lease is new, or its person comes back to it.
    for think, busy in [(0, spans[0][1]), *spans[1:]]:
        for working, seconds in ((False, think), (True, busy)):
            samples = [now + timedelta(seconds=n + 1) for n in range(seconds)]
            use = 0.9 if working else 0.0
            now += timedelta(seconds=seconds)
            state = advance(
                state,
                [DeviceSample(at, use) for at in samples],
                [ActivitySample(at, int(working)) for at in samples],
                now,
                time_outs=outs,
                active_since=active,
            )
            if working:
                ended = now
                assert state.evidence.verdict is evidence.busy_since(now).verdict
    after = [now + timedelta(seconds=n + 1) for n in range(rest)]
    now += timedelta(seconds=rest)
    state = advance(
        state,
        [DeviceSample(at, 0.0) for at in after],
        [ActivitySample(at, 0) for at in after],
        now,
        time_outs=outs,
        active_since=active,
    )
    worked_out = evidence.idle_since(ended, active, warm_up, now)
    assert worked_out.verdict is state.evidence.verdict is Verdict.IDLE
    for name in ("idle_for", "quiet_for"):
        sampled = getattr(state.evidence, name)
        assert getattr(worked_out, name) == pytest.approx(sampled, abs=2 * STEP)
    assert replace(worked_out, before=Verdict.BUSY).before is state.evidence.before
