"""A dry run says in sentences what another document means, and for whom."""

import pytest

from gpulease.policy import document
from gpulease.policy.consequences import at_once, audience
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


def changed(old: str, new: str) -> list[str]:
    assert old in TEXT
    return audience(BEFORE, document.parse(TEXT.replace(old, new), 2))


def test_equal_documents_mean_nothing_for_anybody():
    assert audience(BEFORE, document.parse(TEXT + "# a remark\n", 2)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("idle: 5m", "idle: 4m",
         ["Everybody: an unused GPU is warned of after 4 min, not 5 min."]),
        ("idle: 2m", "idle: 3m",
         ["Who has class a100: an unused GPU is warned of after 3 min, not 2 min."]),
        ("keeps: 3", "keeps: 1", ["Everybody: Keep may be pressed 1 time, not 3 times."]),
        ("leases_per_user: 2", "leases_per_user: 1",
         ["Everybody: one person may have 1 lease, not 2."]),
        ("  a100: {pool: cards, time_outs: {idle: 2m}}\n", "",
         ["Nobody can ask for class a100 any more: who waits for it is refused, who has a GPU of it"
          " keeps it."]),
        ("  a100:", "  v100: {pool: cards}\n  a100:",
         ["Everybody can ask for class v100 (pool cards)."]),
        ("default_class: t4", "default_class: a100", ["Who names no class gets a100, not t4."]),
        ("max_count: 2", "max_count: 1",
         ["Who asks for class t4 may have 1 GPU at once, not 2."]),
        ("price: 1", "price: 3", ["Who is granted class t4 from now on pays 3 GPU-hours for an hour"
                                  " of one GPU, not 1."]),
        ("t4: {pool: cards", "t4: {fallback: [a100], pool: cards",
         ["Who asks for class t4 where it is full is served by a100."]),
        ("{cards: {}", "{cards: {paused: true}",
         ["Who waits for pool cards goes on waiting: it is paused."]),
        ("guarantee: 2", "guarantee: 1, limit: 3",
         ["Members of Physics (group phys): 1 GPU of pool cards guaranteed, not 2.",
          "Members of Physics (group phys): at most 3 GPUs of pool cards at once, not as many as"
          " are free."]),
        ("each: 4", "each: 5",
         ["Members of Physics (group phys): 5 GPU-hours each, not 4."]),
        ("ann: 6", "ann: 1", ["ann in phys: 1 GPU-hour, not 6."]),
        ("rest: {everyone: true}", "rest: {everyone: true, classes: [t4]}",
         ["Who is in no other project: they may ask for t4."]),
        ("rest: {everyone: true}", "rest: {everyone: true, budget: {each: 1}}",
         ["Who is in no other project: 1 GPU-hour each, not as many as they like."]),
        ("each: 4,", "each: 4, at_zero: borrow, from: 2026-10-01, to: 2027-03-31,",
         ["Members of Physics (group phys): the budget is for what is used from Thu 01 Oct 2026 to"
          " Wed 31 Mar 2027 (UTC).",
          "Members of Physics (group phys): who has nothing left of the budget goes on while nobody"
          " else wants the GPU."]),
    ],
)  # fmt: skip
def test_each_change_that_people_feel_is_said_with_whom_it_meets(old, new, said):
    assert changed(old, new) == said


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ("closures: {xmas: {from: 2026-12-24, to: 2027-01-06, title: Break}}",
         ["Nobody has a lab from Thu 24 Dec 2026 to Wed 06 Jan 2027 (Break): windows that are"
          " reserved then go, but for one that has begun."]),
        ("groups: {cs101: {managers: [tom]}}",
         ["tom: may reserve for cs101, see its leases and end them."]),
        ("groups: {cs101: {classes: [t4], windows: 3}}",
         ["Instructors of cs101: they may reserve t4.",
          "Instructors of cs101: the group may have 3 windows ahead."]),
        ("windows: 5", ["Instructors: a group may have 5 windows ahead, not 100."]),
        ("classes: [t4]", ["Instructors: they may reserve t4."]),
        ("idle: {least: 5m, most: 10m}",
         ["Instructors: a lab's own idle time-out may be from 5 min to 10 min."]),
        ("extension: 5m",
         ["Instructors: a lab that is open may be prolonged by 5 min, not 1 h."]),
        ("extra_time: 5m",
         ["Instructors: one person may be given 5 min of extra time, not 2 h."]),
    ],
)  # fmt: skip
def test_what_other_terms_of_reservations_mean_is_said(terms, said):
    after = document.parse(f"{TEXT}reservations: {{{terms}}}\n", 2)
    assert audience(BEFORE, after) == said
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
    assert "Refused now, for the class would be gone: 1 request (carl)." in at_once(
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
