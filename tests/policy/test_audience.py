"""A dry run says in sentences what another document means, and for whom."""

import pytest

from gpulease.policy import document
from gpulease.policy.consequences import at_once, audience
from gpulease.service.languages import catalogue
from gpulease.texts import Text
from tests.policy.build import active, busy, cards, idle, request, seen, snapshot

TEXT = """\
default_class: t4
pools: {cards: {}, old: {}}
classes:
  t4: {pool: cards, max_count: 2, price: 1}
  a100: {pool: cards, time_outs: {idle: 2m}}
time_outs: {idle: 5m, keeps: 3, warm_up: 0}
limits: {leases_per_user: 2, leases_per_server: 2}
projects:
  phys:
    {group: phys, title: Physics, pools: {cards: {guarantee: 2}},
     budget: {each: 4, people: {ann: 6}}}
  rest: {everyone: true}
"""
BEFORE = document.parse(TEXT, 1)


def in_german(said: str) -> bool:
    return isinstance(said, Text) and said.told(catalogue("de")) != said


def changed(old: str, new: str) -> list[str]:
    assert old in TEXT
    return audience(BEFORE, document.parse(TEXT.replace(old, new), 2))


def test_equal_documents_mean_nothing_for_anybody():
    assert audience(BEFORE, document.parse(TEXT + "# a remark\n", 2)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("idle: 5m", "idle: 4m",
         ["Everybody: an idle GPU gets its warning after 4 min, not 5 min."]),
        ("idle: 2m", "idle: 3m",
         ["Class a100: an idle GPU gets its warning after 3 min, not 2 min."]),
        ("keeps: 3", "keeps: 1", ["Everybody: max. extensions: 3 → 1."]),
        ("leases_per_user: 2", "leases_per_user: 1",
         ["Everybody: leases of one person: 2 → 1."]),
        ("  a100: {pool: cards, time_outs: {idle: 2m}}\n", "",
         ["Class a100 is removed: queued requests for it are refused, its leases keep their"
          " GPUs."]),
        ("  a100:", "  v100: {pool: cards}\n  a100:",
         ["Everybody: class v100 (pool cards) is new."]),
        ("default_class: t4", "default_class: a100",
         ["A request that names no class gets a100, not t4."]),
        ("max_count: 2", "max_count: 1", ["Class t4: GPUs of one request: at most 1, not 2."]),
        ("price: 1", "price: 3",
         ["Class t4: a new lease pays 3 GPU-hours for an hour of one GPU, not 1."]),
        ("t4: {pool: cards", "t4: {fallback: [a100], pool: cards",
         ["Class t4: when it is full, requests get a100."]),
        ("{cards: {}", "{cards: {paused: true}", ["Pool cards is paused: requests for it wait."]),
        ("guarantee: 2", "guarantee: 1, limit: 3",
         ["Members of Physics (group phys): guaranteed GPUs of pool cards: 2 → 1.",
          "Members of Physics (group phys): GPUs of pool cards at once: no limit → 3."]),
        ("each: 4", "each: 5",
         ["Members of Physics (group phys): GPU-hours of each person: 4 → 5."]),
        ("ann: 6", "ann: 1", ["ann in phys: GPU-hours: 6 → 1."]),
        ("rest: {everyone: true}", "rest: {everyone: true, classes: [t4]}",
         ["Everyone else: they may request t4."]),
        ("rest: {everyone: true}", "rest: {everyone: true, budget: {each: 1}}",
         ["Everyone else: GPU-hours of each person: no limit → 1."]),
        ("each: 4,", "each: 4, at_zero: borrow, from: 2026-10-01, to: 2027-03-31,",
         ["Members of Physics (group phys): the budget counts what is used from Thu 01 Oct 2026 to"
          " Wed 31 Mar 2027 (UTC).",
          "Members of Physics (group phys): when the budget is used up, a lease continues until"
          " others need its GPU."]),
    ],
)  # fmt: skip
def test_each_change_that_people_feel_is_said_with_whom_it_meets(old, new, said):
    assert changed(old, new) == said
    assert all(in_german(each) for each in changed(old, new))


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ("closures: {xmas: {from: 2026-12-24, to: 2027-01-06, title: Break}}",
         ["No sessions from Thu 24 Dec 2026 to Wed 06 Jan 2027 (Break): those that are reserved are"
          " cancelled, except one in progress."]),
        ("groups: {cs101: {managers: [tom]}}",
         ["tom: may reserve for cs101, see its leases and end them."]),
        ("groups: {cs101: {classes: [t4], windows: 3}}",
         ["Instructors of cs101: they may reserve t4.",
          "Instructors of cs101: sessions ahead: as every group → 3."]),
        ("windows: 5", ["Instructors: sessions that a group may have ahead: 100 → 5."]),
        ("classes: [t4]", ["Instructors: they may reserve t4."]),
        ("idle: {least: 5m, most: 10m}",
         ["Instructors: a session's own idle time-out may be 5 min to 10 min."]),
        ("extension: 5m",
         ["Instructors: a session in progress may be extended by 5 min, not 1 h."]),
        ("extra_time: 5m",
         ["Instructors: one person may get 5 min of extra time, not 2 h."]),
    ],
)  # fmt: skip
def test_what_other_terms_of_reservations_mean_is_said(terms, said):
    after = document.parse(f"{TEXT}reservations: {{{terms}}}\n", 2)
    assert audience(BEFORE, after) == said
    assert all(in_german(each) for each in audience(BEFORE, after))
    back = audience(after, BEFORE)
    assert len(back) == len(said)
    assert not set(back) & set(said)


def site():
    """One card is used, one idle for 200 s; bob's and carl's requests wait."""
    leases = [
        active(0, user="ann", server="a", project="rest"),
        active(1, user="dan", server="d", project="rest"),
    ]
    queued = [
        request(5, user="bob", project="rest"),
        request(6, user="carl", gpu_class="a100", project="rest"),
    ]
    observed = [seen(each) for each in leases]
    evidence = {"r0": busy(), "r1": idle(110)}
    return snapshot([*leases, *queued], cards(2), evidence, observed, policy=BEFORE)


def at_once_after(old: str, new: str) -> list[str]:
    assert old in TEXT
    return at_once(site(), document.parse(TEXT.replace(old, new), 2))


def test_nothing_happens_at_once_without_a_change():
    assert at_once(site(), BEFORE) == []


def test_who_would_be_warned_is_named():
    said = at_once_after("idle: 5m", "idle: 5m, idle_under_pressure: 100s")
    assert "Warned now: 1 lease counts as unused under it (dan)." in said


def test_who_would_be_refused_and_who_keeps_what_is_gone_is_named():
    after = TEXT.replace("  a100: {pool: cards, time_outs: {idle: 2m}}\n", "")
    assert "Refused now, as the class is removed: 1 request (carl)." in at_once(
        site(), document.parse(after, 2)
    )


def test_who_would_be_served_is_named():
    site_of_three = snapshot(
        [*site().leases],
        cards(3),
        site().evidence,
        site().observed.values(),
        policy=document.parse(TEXT.replace("{cards: {}", "{cards: {paused: true}"), 1),
    )
    assert "Served now: 1 request (bob)." in at_once(site_of_three, BEFORE)
    back = at_once(
        snapshot(
            [*site().leases], cards(3), site().evidence, site().observed.values(), policy=BEFORE
        ),
        document.parse(TEXT.replace("{cards: {}", "{cards: {paused: true}"), 2),
    )
    assert "Not served now: 1 request (bob)." in back
    assert any(said.startswith("Waiting for another reason (carl): ") for said in back)
