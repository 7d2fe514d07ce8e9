"""The rule of what fits, by properties; each is one that a mutant of the rule does not have."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from gpulease.policy.reservations import feasibility
from gpulease.policy.reservations.feasibility import (
    Pool,
    conflicts,
    most_seats,
    nearest,
    reserved_at,
    shortened,
)
from tests.helpers import draws
from tests.policy.build import NOW
from tests.policy.reservations.build import window

HOUR = 3600.0


@st.composite
def booked_windows(draw):
    return [
        window(
            f"w{n}",
            draw(st.integers(0, 12)) * HOUR / 2,
            draw(st.integers(1, 8)) * HOUR / 2,
            seats=draw(st.integers(1, 5)),
            group=draw(st.sampled_from(["cs101", "bio", "art"])),
            extra_time=(("ann", 1800.0),) if draw(st.booleans()) else (),
        )
        for n in range(draw(st.integers(1, 6)))
    ]


pools = st.builds(
    Pool,
    firm=st.integers(0, 10),
    spare=st.integers(0, 2),
    guarantees=st.dictionaries(st.sampled_from(["cs101", "bio", "art"]), st.integers(0, 4)),
)


def overbooked(windows, pool, minutes=range(0, 15 * 60, 5)):
    """Go through the day by the clock: is anything ever above the firm capacity?"""
    for minute in minutes:
        at = NOW + timedelta(minutes=minute)
        seats = {}
        for each in windows:
            if each.start <= at < each.last_end:
                kept = (
                    each.of.seats if at < each.end else min(each.of.seats, len(each.of.extra_time))
                )
                seats[each.of.group] = seats.get(each.of.group, 0) + kept
        groups = seats.keys() | pool.guarantees.keys()
        taken = sum(max(seats.get(g, 0), pool.guarantees.get(g, 0)) for g in groups)
        if seats and taken > pool.firm - pool.spare:
            return True
    return False


def agrees(example):
    windows, pool = example
    return bool(conflicts(windows, [], {"cards": pool})) == overbooked(windows, pool)


examples = st.tuples(booked_windows(), pools)


@settings(max_examples=draws(50))
@given(examples)
def test_what_has_no_conflict_is_never_overbooked_and_what_has_one_is(example):
    assert agrees(example)


MUTANTS = {
    "forgets the spare": lambda at, ws, g: reserved_at(at, ws, g) - 1,
    "adds guarantees on top": lambda at, ws, g: sum(w.seats_at(at) for w in ws) + sum(g.values()),
    "forgets guarantees": lambda at, ws, g: sum(w.seats_at(at) for w in ws),
    "counts one window only": lambda at, ws, g: max((w.seats_at(at) for w in ws), default=0),
}


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_the_rule_is_found(mutant, monkeypatch):
    monkeypatch.setattr(feasibility, "reserved_at", mutant)
    assert find(examples, lambda example: not agrees(example))


def test_back_to_back_labs_fit():
    first, second = window("a", 0, HOUR), window("b", HOUR, HOUR)
    assert conflicts([second], [first], {"cards": Pool(3)}) == []


def test_a_conflict_names_where_and_what_is_in_the_way():
    first, second = window("a", 0, 2 * HOUR, group="bio"), window("b", HOUR, 2 * HOUR)
    (found,) = conflicts([second], [first], {"cards": Pool(4)})
    assert (found.window, found.at, found.missing, found.others) == (
        second,
        second.start,
        2,
        (first,),
    )


def test_extra_time_is_reserved_for_those_who_have_it():
    exam = window("a", 0, HOUR, seats=3, extra_time=(("ann", 1800.0), ("bob", 900.0)))
    kept = [exam.seats_at(exam.end + timedelta(minutes=n)) for n in (-1, 0, 14, 15, 29, 30)]
    assert kept == [3, 2, 2, 1, 1, 0]
    (found,) = conflicts([window("b", HOUR, HOUR)], [exam], {"cards": Pool(4)})
    assert found.missing == 1


@settings(max_examples=draws(30))
@given(booked_windows(), pools, st.integers(1, 6))
def test_the_window_that_is_offered_fits_and_no_nearer_whole_quarter_does(booked, pool, seats):
    there = {"cards": pool}
    wanted = [window("new", 2 * HOUR, HOUR, seats=seats, group="art")]
    booked = [w for w in booked if not conflicts([w], [o for o in booked if o is not w], there)]
    move = nearest(wanted, booked, there, NOW)
    if not conflicts(wanted, booked, there):
        return  # nobody asks where it fits as it is

    def fits(by):
        moved = [replace(w, start=w.start + by, end=w.end + by) for w in wanted]
        return moved[0].start >= NOW and not conflicts(moved, booked, there)

    quarters = [timedelta(minutes=15 * n) for n in range(-8, 60)]
    nearer = [q for q in quarters if fits(q) and (move is None or abs(q) < abs(move))]
    assert nearer == []
    assert move is None or fits(move)


@settings(max_examples=draws(30))
@given(booked_windows(), pools)
def test_so_many_seats_fit_and_one_more_does_not(booked, pool):
    there, wanted = {"cards": pool}, window("new", 2 * HOUR, HOUR, seats=9, group="art")
    most = most_seats([wanted], booked, there)

    def fits(seats):
        return not conflicts([replace(wanted, of=replace(wanted.of, seats=seats))], booked, there)

    assert most == 0 or fits(most)
    assert most == 9 or not fits(most + 1)


seats_of = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 30), min_size=1)


def fair(rule, seats, capacity):
    """Nobody gets more than reserved, nothing is left, more capacity takes nothing away."""
    given_, more = rule(seats, capacity), rule(seats, capacity + 1)
    whole = sum(seats.values())
    return (
        all(0 <= given_[k] <= seats[k] for k in seats)
        and sum(given_.values()) == min(whole, capacity)
        and all(given_[k] <= more[k] for k in seats)
        and all(abs(given_[k] - seats[k] * min(1, capacity / max(1, whole))) < 1.5 for k in seats)
    )


def largest_remainder(seats, capacity):
    """The usual way, which takes a seat away when a device comes back."""
    whole = max(1, sum(seats.values()))
    if whole <= capacity:
        return dict(seats)
    exact = {k: n * capacity / whole for k, n in seats.items()}
    given_ = {k: int(x) for k, x in exact.items()}
    rest = sorted(seats, key=lambda k: (int(exact[k]) - exact[k], k))
    for k in rest[: capacity - sum(given_.values())]:
        given_[k] += 1
    return given_


@given(seats_of, st.integers(0, 120))
def test_lost_capacity_shortens_pro_rata_and_house_monotone(seats, capacity):
    assert fair(shortened, seats, capacity)


def first_come(seats, capacity):
    given_ = {}
    for k in sorted(seats):
        given_[k] = min(seats[k], capacity - sum(given_.values()))
    return given_


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", [largest_remainder, first_come])
def test_another_way_of_rounding_is_found_out(mutant):
    wide = st.tuples(seats_of, st.integers(0, 120))
    try:
        find(wide, lambda e: not fair(mutant, *e), settings=settings(max_examples=20000))
    except NoSuchExample:
        pytest.fail("the property does not tell it from the rule")
