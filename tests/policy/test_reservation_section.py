"""The policy document's section on reservations, read, refused and written back."""

from datetime import date

import pytest

from gpulease.policy.calendar.occurrences import Closure
from gpulease.policy.calendar.reservation import ReservationTerms
from gpulease.policy.document import check, dump, parse
from gpulease.policy.document.edit import differences

BASE = "pools: {cards: {spare: 2}}\nclasses: {t4: {pool: cards}, a100: {pool: cards}}\n"
GOOD = (
    BASE
    + """\
reservations:
  gpu_hours: 500
  windows: 12
  advance: 30d
  longest: 4h
  lead: 10m
  grace: 5m
  extension: 30m
  extra_time: 1h
  idle: {least: 2m, most: 20m}
  classes: [t4]
  closures:
    christmas: {from: 2026-12-24, to: 2027-01-06, title: Christmas break}
    may-day: {from: 2026-05-01, to: 2026-05-01}
  groups:
    cs101: {classes: [], gpu_hours: 1000, managers: [tom, ann], image: "here:5000/cs101:1"}
    "bio lab": {windows: 3, advance: 7d}
"""
)


def test_a_section_with_everything():
    document = parse(GOOD)
    terms = document.reservations
    assert document.pools[0].spare == 2
    assert (terms.gpu_hours, terms.windows, terms.advance) == (500, 12, 30 * 86400)
    assert (terms.longest, terms.lead, terms.grace) == (14400, 600, 300)
    assert (terms.idle.least, terms.idle.most, terms.classes) == (120, 1200, ("t4",))
    assert terms.closures == (
        Closure(date(2026, 12, 24), date(2027, 1, 6), "Christmas break"),
        Closure(date(2026, 5, 1), date(2026, 5, 1), "may-day"),
    )
    own, other, any_group = (terms.of_group(name) for name in ("cs101", "bio lab", "art"))
    assert (own.classes, own.gpu_hours, own.windows) == ((), 1000, 12)
    assert (other.classes, other.gpu_hours, other.windows) == (("t4",), 500, 3)
    assert (own.image, other.image) == ("here:5000/cs101:1", "")
    assert terms.images == (own.image,)
    assert (any_group.advance, any_group.managers) == (30 * 86400, ())
    assert terms.managed_by("tom") == {"cs101"}
    assert terms.managed_by("eve") == frozenset()


def test_it_is_written_back_as_it_was_read():
    for text in (BASE, GOOD):
        document = parse(text)
        assert parse(dump(document)) == document
    assert parse(BASE).reservations == ReservationTerms()


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ("gpu_hours: -1", "gpu_hours"),
        ("windows: many", "not a whole number"),
        ("advance: soon", "not a duration"),
        ("classes: [h100]", "no class 'h100'"),
        ("idle: {least: 5m, most: 1m}", "shorter than the shortest"),
        ("closures: {x: {from: 2026-13-01, to: 2026-01-02}}", "from: '2026-13-01' is not a day"),
        ("closures: {x: {from: 2026-01-01}}", "lacks the key 'to'"),
        ("closures: {x: {from: 2026-01-03, to: 2026-01-02}}", "ends before it begins"),
        ("closures: [a]", "must be a mapping"),
        ("groups: {cs101: {managrs: [a]}}", "has no key 'managrs'"),
        ("groups: {cs101: {classes: [h100]}}", "no class 'h100'"),
        ("groups: {cs101: {image: 'two words'}}", "not of the right form"),
        ("led: 5m", "Did you mean 'lead'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(section, part):
    (found,) = check(f"{BASE}reservations:\n  {section}\n")
    assert part in f"{found.message} {found.next_step}"
    assert found.line == 4


def test_a_dry_run_says_what_would_change():
    assert differences(parse(BASE), parse(BASE.replace("spare: 2", "spare: 3"))) == [
        "for pool cards: set spare from 2 to 3"
    ]
    said = differences(parse(BASE), parse(f"{BASE}reservations: {{lead: 5m, windows: 3}}\n"))
    assert said == [
        "set reservations.windows from 100 to 3",
        "set reservations.lead from 2m to 5m",
    ]
