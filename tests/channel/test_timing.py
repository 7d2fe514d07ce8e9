"""Pauses grow to a bound and begin anew; silence is noticed once, a break sooner."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.channel.timing import BackOff, Heartbeat


def test_pauses_grow_to_their_bound_and_begin_anew() -> None:
    pauses = BackOff(0.1, 3.0)
    taken = [pauses.pause() for _ in range(10)]
    assert 0.07 <= taken[0] <= 0.13
    assert all(2.1 <= pause <= 3.9 for pause in taken[5:])
    pauses.worked()
    assert pauses.pause() <= 0.13


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 4), st.sampled_from(["heard", "broke", "looked"]))))
def test_the_other_end_is_lost_by_its_silence_and_sooner_after_a_break(events) -> None:
    now, heard, lost = 0.0, 0.0, 0
    beat = Heartbeat(now, lost_after=15.0, back_within=3.0)
    for seconds, event in events:
        now += seconds
        if event == "heard":
            heard = now
            beat.heard(now)
        elif event == "broke":
            heard = min(heard, now - 12.0)
            beat.broke(now)
        else:
            gone = beat.just_lost(now)
            assert gone == (now - heard > 15.0 and not lost)
            lost += gone
    assert lost <= 1
    assert beat.lost == bool(lost)
