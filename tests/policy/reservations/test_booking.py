"""What may be reserved, what is refused and what is offered instead."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.occurrences import Occurrence
from gpulease.policy.calendar.reservation import GroupTerms, ReservationTerms
from gpulease.policy.reservations.booking import check, gpu_hours, windows
from gpulease.policy.reservations.feasibility import Pool
from tests.policy.build import NOW, policy
from tests.policy.reservations.build import reservation

POOLS = {"cards": Pool(4), "slices": Pool(8)}
HOUR = 3600.0


def refusal(wanted, *others, pools=POOLS, before=None, **terms):
    with pytest.raises(GPULeaseError) as caught:
        book(wanted, *others, pools=pools, before=before, **terms)
    return caught.value


def book(wanted, *others, pools=POOLS, before=None, **terms):
    document = policy(reservations=ReservationTerms(**terms))
    check(wanted, others, document, pools=pools, now=NOW, before=before)


def test_what_fits_is_taken():
    book(reservation(), reservation("b", 10 * HOUR))
    book(reservation(seats=1), reservation("b", seats=3))


def test_a_refusal_names_the_conflict_and_the_nearest_window_that_fits():
    error = refusal(reservation(), reservation("b", seats=3, group="bio"))
    assert (error.reason, error.status) == ("reservation_conflict", 409)
    assert error.sentence == (
        "3 x t4 will not fit on Mon 02 Mar 2026 15:00: 2 are missing from Mon 02 Mar 2026 15:00 on."
        " Reserved then: 3 for bio, 15:00-17:00."
    )
    assert error.numbers["offer"] == {
        "nearest": "2026-03-02T17:00",
        "seats": 1,
        "classes": ["slice"],
        "split": None,
    }
    assert "begins at Mon 02 Mar 2026 17:00" in error.next_step
    assert "1 seat fits at your time. The class slice has room then." in error.next_step


def test_one_seat_that_is_missing_is_told_of_in_the_singular():
    error = refusal(reservation(seats=1), reservation("b", seats=4))
    assert "1 x t4 will not fit on" in error.sentence
    assert ": 1 is missing from" in error.sentence


def test_a_part_of_a_card_is_no_seat():
    part = replace(policy().classes[0], parts=7, card_parts=10)
    with pytest.raises(GPULeaseError) as caught:
        check(reservation(), (), policy(classes=(part,)), pools=POOLS, now=NOW, before=None)
    assert "Class 't4' is a part of a card: seats are whole GPUs." in str(caught.value)
    assert caught.value.next_step == "Reserve a class of whole GPUs."


def test_no_part_of_a_card_is_offered_in_place_of_what_does_not_fit():
    whole, other = policy().classes
    part = replace(other, parts=7, card_parts=10)
    with pytest.raises(GPULeaseError) as caught:
        check(
            reservation(), [reservation("b", seats=3)], policy(classes=(whole, part)),
            pools=POOLS, now=NOW, before=None,
        )  # fmt: skip
    assert caught.value.numbers["offer"]["classes"] == []


def test_half_the_seats_twice_are_offered():
    offer = refusal(reservation(seats=6)).numbers["offer"]
    assert (offer["seats"], offer["split"]) == (4, "2026-03-02T17:00")


def test_nothing_is_offered_that_does_not_fit():
    error = refusal(reservation(), pools={"cards": Pool(0), "slices": Pool(0)})
    assert error.numbers["offer"] == {"nearest": None, "seats": 0, "classes": [], "split": None}
    assert "Ask an admin" in error.next_step


def test_a_series_says_how_many_windows_do_not_fit():
    error = refusal(reservation(weeks=5), reservation("b", weeks=3))
    assert "3 of 5 sessions do not fit" in error.sentence


def test_the_spare_and_what_is_guaranteed_to_others_is_not_reserved():
    book(reservation(seats=4))
    refusal(reservation(seats=4), pools={"cards": Pool(4, spare=1)})
    refusal(reservation(seats=3), pools={"cards": Pool(4, guarantees={"bio": 2})})
    book(reservation(seats=4), pools={"cards": Pool(4, guarantees={"cs101": 2})})


@pytest.mark.parametrize(
    ("changed", "terms", "part"),
    [
        ({"gpu_class": "h100"}, {}, "There is no class 'h100'"),
        ({}, {"classes": ("slice",)}, "Reserve one of: slice"),
        ({"seats_per_person": 4}, {}, "4 seats"),
        ({"idle": 30.0}, {}, "Choose from 1 min to 1 h"),
        ({"idle": 7200.0}, {}, "Choose from 1 min to 1 h"),
        ({"extra_time": (("ann", 9000.0),)}, {}, "ann would have 2 h 30 min"),
        ({}, {"longest": HOUR}, "A session of 2 h is too long"),
        ({"weeks": 5}, {"windows": 4}, "would have 5 sessions ahead; it may have 4"),
        ({"weeks": 5}, {"gpu_hours": 29.0}, "reserved 30 GPU-hours ahead; it may have 29"),
        ({"start": 40 * 86400.0}, {"advance": 30 * 86400.0}, "more than 30 days away"),
        ({"start": -3 * HOUR}, {}, "is over already"),
    ],
)
def test_what_a_site_does_not_allow_is_refused_with_its_bound(changed, terms, part):
    error = refusal(reservation(**changed), **terms)
    assert error.reason == "reservation_refused"
    assert part in str(error)
    assert error.next_step


def test_a_group_may_have_terms_of_its_own():
    terms = {"windows": 2, "groups": (("cs101", GroupTerms(windows=5, classes=("t4",))),)}
    book(reservation(weeks=5), **terms)
    refusal(reservation(weeks=5, group="bio"), **terms)


def test_other_windows_of_the_group_count_towards_its_bounds_and_other_groups_do_not():
    mine, theirs = reservation("b", 10 * HOUR, weeks=3), reservation("c", 20 * HOUR, group="bio")
    refusal(reservation(weeks=2), mine, windows=4)
    book(reservation(weeks=2), mine, theirs, windows=5)


def test_past_windows_count_for_nothing():
    begun = reservation(start=-14 * 86400.0, weeks=4)
    book(begun, windows=2)
    document = policy()
    assert gpu_hours(w for w in windows(document, begun) if w.last_end > NOW) == 12


def extended(base, by):
    (first, *rest) = base.occurrences
    longer = Occurrence(first.original, first.start, first.end + timedelta(seconds=by))
    return replace(base, occurrences=(longer, *rest))


def test_an_open_window_is_extended_where_that_is_free():
    booked = reservation(start=-HOUR)
    book(extended(booked, 1800), before=booked)
    following = reservation("b", HOUR, group="bio")
    error = refusal(extended(booked, 1800), following, before=booked)
    assert error.reason == "reservation_conflict"
    error = refusal(extended(booked, 2 * HOUR), before=booked)
    assert "extended by 1 h at most" in error.sentence


def test_a_change_that_needs_nothing_more_is_never_refused_for_capacity_lost_since():
    booked = reservation()
    less = {"cards": Pool(1), "slices": Pool(0)}
    book(replace(booked, title="Lab 1"), before=booked, pools=less)
    book(replace(booked, seats=2), before=booked, pools=less)
    refusal(replace(booked, seats=4), before=booked, pools=less)
