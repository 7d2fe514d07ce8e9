"""The sections ``projects`` and ``shares``: what is read, and what is found wrong."""

from datetime import date

import pytest

from gpulease.policy import document
from gpulease.policy.document.edit import differences
from gpulease.policy.projects import AtZero, Budget, Member, Project, Projects, Share

BASE = "pools: {cards: {}}\nclasses: {t4: {pool: cards}}\n"
WHOLE = (
    BASE
    + """\
shares: {half_life: 3d, strength: 0.5}
projects:
  physics: {title: Physics, pools: {cards: {guarantee: 6}}}
  particles:
    parent: physics
    group: phys-particles
    pools: {cards: {guarantee: 4, limit: 8}}
    classes: [t4]
    weight: 2
    members: {weight: 1, limit: 2}
    people: {ann: {weight: 2}}
    budget: {gpu_hours: 500, each: 40, people: {ann: 80}, zone: Europe/Berlin, at_zero: borrow,
             from: 2026-10-01, to: 2027-03-31, contact: [pi@example.org]}
  optics: {parent: physics}
  others: {everyone: true}
"""
)


def test_everything_is_read_and_written_back():
    read = document.parse(WHOLE).projects
    assert read.half_life == 3 * 86400
    assert [each.name for each in read.leaves] == ["particles", "optics", "others"]
    assert read.by_name["particles"] == Project(
        "particles",
        group="phys-particles",
        parent="physics",
        weight=2,
        pools=(("cards", Share(4, 8)),),
        classes=("t4",),
        members=Member(1, 2),
        people=(("ann", Member(2, 2)),),
        budget=Budget(
            500, 40, (("ann", 80.0),), date(2026, 10, 1), date(2027, 3, 31), "Europe/Berlin",
            AtZero.BORROW, ("pi@example.org",),
        ),
    )  # fmt: skip
    assert document.parse(document.dump(document.parse(WHOLE))).projects == read


def test_the_tree_is_known_by_its_groups():
    read = document.parse(WHOLE).projects
    assert [p.name for p in read.of(("optics", "phys-particles"))] == ["particles", "optics"]
    assert [p.name for p in read.of(("elsewhere",))] == ["others"]
    assert [p.name for p in read.above(read.by_name["optics"])] == ["optics", "physics"]
    assert read.guarantee(read.by_name["physics"], "cards") == 6
    assert read.guarantees("cards") == {"phys-particles": 4, "project physics": 2}
    assert Projects().of(("optics",)) == (Project(""),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {parent: b}", "There is no project 'b'."),
        ("a: {parent: b}\n  b: {parent: a}", "below itself"),
        ("a: {parent: a}", "below itself"),
        ("a: {pools: {slices: {guarantee: 1}}}", "has no key 'slices'"),
        ("a: {pools: {cards: {guarantee: 3, limit: 2}}}", "below the guarantee"),
        ("a: {pools: {cards: {guarantee: -1}}}", "at least 0"),
        ("a: {group: g}\n  b: {group: g}", "both of group 'g'"),
        ("a: {everyone: true}\n  b: {everyone: true}", "both of everyone"),
        ("a: {everyone: true, group: g}", "has no group"),
        ("a: {group: g}\n  b: {parent: a}", "a is the parent of other projects: it has no group"),
        ("a: {budget: {each: 3}}\n  b: {parent: a}", "it has no budget of its own"),
        ("a: {budget: {from: 2026-10-01}}", "to is missing"),
        ("a: {budget: {from: 2026-10-01, to: 2026-09-01}}", "ends before it begins"),
        ("a: {budget: {from: soon, to: 2026-09-01}}", "from: 'soon' is not a day"),
        ("a: {budget: {zone: Mars}}", "not a time zone"),
        ("a: {budget: {at_zero: cry}}", "'cry' is not known here"),
        ("a: {budget: {contact: ['a(b@x.org']}}", "is not an e-mail address"),
        ('a: {budget: {contact: ["a\\x1cb@x.org"]}}', "is not an e-mail address"),
        ("a: {classes: [h100]}", "there is no class 'h100'"),
        ("a: {wait: 2}", "has no key 'wait'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_with_its_line(text, message):
    findings = document.check(f"{BASE}projects:\n  {text}\n")
    assert any(message in each.message for each in findings), findings
    assert all(each.line >= 3 for each in findings)


def test_a_change_is_said_in_words():
    old = document.parse(BASE + "projects: {a: {pools: {cards: {guarantee: 1}}}, b: {}}")
    new = document.parse(
        BASE + "shares: {strength: 0}\n"
        "projects: {a: {pools: {cards: {guarantee: 3}}, budget: {each: 4}}, c: {}}"
    )
    assert differences(old, new) == [
        "set shares.strength from 1.0 to 0.0",
        "add project c",
        "remove project b",
        "for project a: set pools.cards.guarantee from 1 to 3",
        "for project a: set budget.each from none to 4.0",
        "for project a: set budget.zone from none to UTC",
        "for project a: set budget.at_zero from none to end",
    ]
