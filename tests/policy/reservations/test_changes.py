"""What is said of a changed reservation to those who are told of it."""

from dataclasses import replace
from datetime import timedelta

from gpulease.policy.calendar.occurrences import Calendar, Changed, expand
from gpulease.policy.reservations.reports import changes_of
from tests.policy.build import NOW
from tests.policy.reservations.build import BERLIN, reservation, wall

WEEKLY = Calendar(wall("2026-03-04T14:00"), wall("2026-03-04T16:00"), BERLIN, "FREQ=WEEKLY;COUNT=3")


def lab(calendar=WEEKLY, **changed):
    return reservation(calendar=calendar, occurrences=expand(calendar, ()).occurrences, **changed)


def test_each_change_is_named_with_what_was_before():
    before = lab(seats=2)
    after = replace(before, seats=3, exam=True, named=("ann",), contact=("a@x.org",))
    assert changes_of(before, after, NOW) == (
        "3 seats, not 2; it is an exam; who may come; who gets mail of it"
    )
    other = replace(before, gpu_class="other")
    assert changes_of(before, other, NOW) == f"GPUs of other, not {before.gpu_class}"
    assert changes_of(before, replace(before, version=9), NOW) == ""


def test_a_window_that_is_moved_or_left_out_is_named_on_the_labs_own_clock():
    before, at = lab(), wall("2026-03-11T14:00")
    moved = Changed(at, wall("2026-03-11T16:00"), wall("2026-03-11T18:00"))
    assert changes_of(before, lab(replace(WEEKLY, changed=(moved,))), NOW) == (
        "the session of Wed 11 Mar is Wed 11 Mar 2026 16:00 to 18:00, "
        "it was Wed 11 Mar 2026 14:00 to 16:00 (Europe/Berlin)"
    )
    gone = lab(replace(WEEKLY, changed=(Changed(at),)))
    said = "Wed 11 Mar 2026 14:00 to 16:00 (Europe/Berlin)"
    assert changes_of(before, gone, NOW) == f"no session {said}"
    assert changes_of(gone, before, NOW) == f"a session {said}"


def test_a_single_window_at_another_time_is_the_same_one():
    once = replace(WEEKLY, repeat="")
    later = replace(once, start=wall("2026-03-05T15:00"), end=wall("2026-03-05T17:00"))
    assert changes_of(lab(once), lab(later), NOW) == (
        "the session of Thu 05 Mar is Thu 05 Mar 2026 15:00 to 17:00, "
        "it was Wed 04 Mar 2026 14:00 to 16:00 (Europe/Berlin)"
    )


def test_a_window_that_was_ended_early_has_ended():
    before = lab()
    first = before.occurrences[0]
    now = first.start + timedelta(minutes=30)
    ended = replace(before, occurrences=(first._replace(end=now), *before.occurrences[1:]))
    assert changes_of(before, ended, now) == (
        "the session of Wed 04 Mar has ended, it was Wed 04 Mar 2026 14:00 to 16:00 (Europe/Berlin)"
    )


def test_of_many_windows_some_are_named_and_the_others_counted():
    after = lab(replace(WEEKLY, repeat="FREQ=WEEKLY;COUNT=12"))
    said = changes_of(lab(), after, NOW)
    assert said.count("a session") == 5
    assert said.endswith("; 4 more sessions (Europe/Berlin)")
