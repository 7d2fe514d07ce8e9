"""Closures of the institution: what is refused, what is offered, and what changes later."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar import ics
from gpulease.policy.calendar.ics_read import from_ics
from gpulease.policy.calendar.occurrences import Calendar, Changed, Closure, Occurrence, expand
from gpulease.policy.calendar.reservation import ReservationTerms
from gpulease.policy.reservations.booking import check, fits_beside
from gpulease.policy.reservations.feasibility import Pool
from gpulease.policy.reservations.reports import expanded_anew, what_changed
from tests.policy.build import NOW, policy
from tests.policy.reservations.build import BERLIN, reservation, wall

POOLS = {"cards": Pool(4)}
BREAK = Closure(date(2026, 3, 9), date(2026, 3, 15), "Spring break")
WEEKLY = Calendar(wall("2026-03-04T14:00"), wall("2026-03-04T16:00"), BERLIN, "FREQ=WEEKLY;COUNT=3")


def lab(calendar=WEEKLY, closures=(BREAK,), **changed):
    found = expand(calendar, closures)
    given = {"occurrences": found.occurrences, "closed": found.skipped, **changed}
    return reservation(calendar=calendar, **given)


def book(wanted, *others, before=None):
    document = policy(reservations=ReservationTerms(closures=(BREAK,)))
    check(wanted, others, document, pools=POOLS, now=NOW, before=before)


def test_a_series_leaves_closed_days_out_and_fits():
    wanted = lab()
    book(wanted)
    assert [each.original.day for each in wanted.occurrences] == [4, 18]
    assert wanted.closed == ((wall("2026-03-11T14:00"), "Spring break"),)


def test_one_that_lies_on_a_closed_day_is_refused_with_the_nearest_open_time():
    once = replace(WEEKLY, start=wall("2026-03-10T14:00"), end=wall("2026-03-10T16:00"), repeat="")
    with pytest.raises(GPULeaseError) as caught:
        book(lab(once))
    assert caught.value.sentence == "Nothing is open on Tue 10 Mar 2026: Spring break."
    assert caught.value.numbers["offer"]["nearest"] == "2026-03-08T14:00"
    assert "begins at Sun 08 Mar 2026 14:00" in caught.value.next_step


def test_a_window_that_is_moved_to_a_closed_day_does_not_vanish_without_a_word():
    before = lab()
    moved = Changed(wall("2026-03-18T14:00"), wall("2026-03-12T14:00"), wall("2026-03-12T16:00"))
    after = lab(replace(WEEKLY, changed=(moved,)))
    with pytest.raises(GPULeaseError, match="open on Thu 12 Mar 2026: Spring break"):
        book(after, before=before)
    book(replace(after, title="New"), before=after)  # what was so before is no news


def test_no_time_on_a_closed_day_is_offered():
    there = reservation("b", seats=4, group="bio", occurrences=lab(closures=()).occurrences[:1])
    wanted = lab(replace(WEEKLY, repeat=""), seats=3)
    with pytest.raises(GPULeaseError) as caught:
        book(wanted, there)
    assert caught.value.numbers["offer"]["nearest"] == "2026-03-04T16:00"
    shut = Closure(date(2026, 3, 4), date(2026, 3, 4), "Founders")
    document = policy(reservations=ReservationTerms(closures=(shut,)))
    with pytest.raises(GPULeaseError) as caught:
        check(wanted, [there], document, pools=POOLS, now=NOW)
    assert caught.value.numbers["offer"]["nearest"] == "2026-03-05T14:00"


def test_a_closure_that_comes_later_takes_windows_away_and_gives_them_back():
    before = lab(closures=())
    found = expand(WEEKLY, (BREAK,))
    shut = expanded_anew(before, found, NOW, lambda _: True)
    assert (shut.version, len(shut.occurrences)) == (before.version + 1, 2)
    assert what_changed(before, shut) == (
        "lab of cs101 has no session on Wed 11 Mar 2026 14:00 (Spring break)."
    )
    assert expanded_anew(shut, found, NOW, lambda _: True) is shut
    again = expanded_anew(shut, expand(WEEKLY), NOW, lambda _: True)
    assert again.occurrences == before.occurrences
    assert what_changed(shut, again) == "lab of cs101 has again one on Wed 11 Mar 2026 14:00."


def test_a_window_comes_back_only_where_it_still_fits():
    shut, document = lab(), policy()
    other = reservation("b", seats=2, occurrences=lab(closures=()).occurrences[1:2])
    found = expand(WEEKLY)
    after = expanded_anew(
        shut, found, NOW, lambda one: fits_beside(shut, one, [shut, other], document, POOLS)
    )
    assert len(after.occurrences) == 2
    assert "(others have reserved it since)" in what_changed(shut, after)
    assert expanded_anew(after, found, NOW, lambda _: True).occurrences == found.occurrences


def test_a_window_that_has_begun_stays_whatever_is_closed():
    before = lab(closures=())
    during = before.occurrences[1].start + timedelta(minutes=1)
    after = expanded_anew(before, expand(WEEKLY, (BREAK,)), during, lambda _: True)
    assert [each.original.day for each in after.occurrences] == [4, 11, 18]


def test_windows_follow_when_the_rules_of_their_zone_change():
    before = lab(closures=())
    hour = timedelta(hours=1)
    old = tuple(Occurrence(o.original, o.start + hour, o.end + hour) for o in before.occurrences)
    known = replace(before, occurrences=old)
    after = expanded_anew(known, expand(WEEKLY), NOW, lambda _: True)
    assert after.occurrences == before.occurrences
    assert "begins at 13:00 UTC, for the rules of its time zone changed" in what_changed(
        known, after
    )


def test_a_calendar_program_sees_no_lab_on_a_closed_day_and_none_is_lost_by_reading_it_again():
    text = ics.to_ics([lab()])
    assert "EXDATE;TZID=Europe/Berlin;X-GPULEASE-CLOSED=TRUE:20260311T140000" in text
    assert from_ics(text, NOW).reservations[0]["without"] == []
