"""Who came, for how long, and how a spreadsheet reads it."""

import csv
import io
from dataclasses import replace

from gpulease.policy.model import LeaseState
from gpulease.policy.reservations.reports import as_csv, attendance
from tests.policy.build import NOW, active, at
from tests.policy.reservations.build import window

LAB = window(start=-3600, length=1800)
MEMBER = {"groups": ("cs101",)}


def held(number, begin, end, **changed):
    base = active(number, active_since=at(begin), **{**MEMBER, **changed})
    return replace(base, state=LeaseState.ENDED, ended=at(end)) if end is not None else base


def rows(*leases, busy=None, lab=LAB):
    found = attendance([lab], leases, busy or {}, NOW)
    return [(r.user, r.leases, round(r.held), round(r.busy)) for r in found]


def test_only_what_was_inside_the_window_counts():
    early, late = held(1, -4000, -3300), held(2, -2400, None)
    assert rows(early, late, busy={"r1": 0.5}) == [("user1", 1, 300, 150), ("user2", 1, 600, 0)]


def test_several_leases_of_one_person_are_one_row():
    first, second = held(1, -3600, -3500), held(2, -3000, -2900, user="user1")
    (row,) = attendance([LAB], [second, first], {}, NOW)
    assert (row.leases, row.held) == (2, 200)
    assert (row.came, row.left) == (at(-3600), at(-2900))


def test_who_was_there_before_after_or_of_another_group_did_not_come():
    assert rows(held(1, -9000, -3600), held(2, -1800, None), held(3, -3600, None, groups=())) == []


def test_named_people_who_did_not_come_are_listed_and_a_window_to_come_is_not():
    lab = replace(LAB, of=replace(LAB.of, named=("ann", "user1")))
    assert rows(held(1, -3600, -3000), lab=lab) == [("ann", 0, 0, 0), ("user1", 1, 600, 0)]
    assert attendance([window(start=60)], [held(1, -3600, None)], {}, NOW) == []


def test_extra_time_counts_for_those_who_have_it():
    lab = window(start=-3600, length=1800, extra_time=(("user1", 600.0),))
    assert rows(held(1, -3600, None), held(2, -3600, None), lab=lab) == [
        ("user1", 1, 2400, 0),
        ("user2", 1, 1800, 0),
    ]


def test_a_name_that_a_spreadsheet_would_run_is_quoted():
    lease = held(1, -3600, -3000, user="=HYPERLINK(1)")
    header, row = csv.reader(io.StringIO(as_csv(attendance([LAB], [lease], {}, NOW))))
    assert header[:2] == ["window", "user"]
    assert (row[1], *row[4:]) == ("'=HYPERLINK(1)", "1", "600", "0")
    assert [row[0], *row[2:4]] == ["2026-03-02T13:00", "2026-03-02T13:00", "2026-03-02T13:10"]
