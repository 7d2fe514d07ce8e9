"""Whatever may happen to a site whose pool is of parts of cards: the promises hold there too."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from gpulease.policy.capacity import with_parts
from gpulease.policy.model import Device, GPUClass, Lease
from tests.policy.fairness.build import project
from tests.policy.test_state_machine import (
    FOUND,
    GIB,
    GROUPS,
    NIGHTLY,
    POLICIES,
    QUICK,
    SHARED,
    Core,
    Site,
    habits,
)
from tests.policy.world import Habit
from tests.simulate.invariants import BrokenPromise

FOUR = {"cards": 4}


def of_parts(policy):
    """A policy of the other machine, its cards divided into quarters."""
    outs = policy.time_outs
    kinds = {"t4": (3, (2, 1)), "half": (2, (1,)), "whole": (4, (3, 1)), "bit": (1, ())}
    names = {each.name for each in policy.classes}
    classes = tuple(
        GPUClass(name, "cards", time_outs=outs, parts=parts, card_parts=4, steps=steps)
        for name, (parts, steps) in kinds.items()
        if name != "t4" or "t4" in names
    )
    pools = tuple(replace(p, parts=FOUR.get(p.name, 0)) for p in policy.pools)
    rest = tuple(each for each in policy.classes if each.pool != "cards")
    return replace(policy, pools=pools, classes=(*classes, *rest), default_class=classes[0].name)


PROJECTS = replace(
    SHARED.projects,
    all=(
        project("phys", guarantee=4, limit=8),
        project("bio", guarantee=3),
        *SHARED.projects.all[2:],
    ),
)
PARTS = {
    name: of_parts(replace(each, projects=PROJECTS) if each.projects.all else each)
    for name, each in POLICIES.items()
}
wishes = st.tuples(
    habits,
    st.integers(0, 1),
    st.sampled_from(GROUPS),
    st.fixed_dictionaries(
        {
            "gpu_class": st.sampled_from([None, "t4", "half", "whole", "bit", "slice"]),
            "at_least": st.sampled_from([None, None, 1, 25, 50]),
            "batch": st.sampled_from([False, False, False, True]),
            "needs": st.sampled_from(["", "", "", "memory>=30GiB"]),
            "in_quota_only": st.integers(0, 9).map(lambda n: n == 9),
        }
    ),
)


class OfParts(Core):
    """The same stories, with parts of cards."""

    policies = PARTS

    @initialize(cards=st.integers(1, 3), crowd=st.lists(wishes, min_size=2, max_size=6))
    def begin(self, cards, crowd):
        self.site = Site(self.policies["shared"], [])
        self.joined = 0
        for _ in range(cards):
            self.a_card_joins()
        self.people_ask(crowd)

    def a_card_joins(self):
        new = Device(f"GPU-{self.joined}", "cards", memory=(16 + 24 * (self.joined % 2)) * GIB)
        self.site.devices += with_parts([new], FOUR)
        self.joined += 1

    @rule(wishes=st.lists(wishes, min_size=1, max_size=4))
    def people_ask(self, wishes):
        super().people_ask(wishes)

    @rule(ticks=st.sampled_from([6, 1, 3, 30]), comes=wishes)
    def somebody_comes_and_time_passes(self, ticks, comes):
        super().somebody_comes_and_time_passes(ticks, comes)

    @rule()
    def a_device_joins(self):
        self.a_card_joins()

    @rule(
        least=st.sampled_from([25, 50]),
        drain=st.sampled_from(["done", "done", "blocked", "silent"]),
        release=st.sampled_from([5, 30]),
        ticks=st.integers(2, 25),
    )
    def what_is_borrowed_is_asked_for_in_part(self, least, drain, release, ticks):
        """One of phys has most of a card, all others fail, and bio wants what it owns."""
        self.site.policy = self.policies["shared"]
        uses = Habit(start=0, works=10_000, drain=drain, release=release)
        self.site.ask_as("phys9", uses, groups=("phys",), gpu_class="t4", at_least=least)
        self.time_passes(10)
        held = {u for x in self.site.live() if x.user == "phys9" for u in x.devices}
        cards = {d.card for d in self.site.devices if d.uuid in held}
        self.site.devices = [replace(d, healthy=d.card in cards) for d in self.site.devices]
        half = replace(uses, start=5)
        self.site.ask_as("bio9", half, groups=("bio",), gpu_class="half")
        self.time_passes(ticks)


def test_whatever_happens_the_promises_hold_for_parts():
    run_state_machine_as_test(OfParts, settings=settings(QUICK, max_examples=6))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_whatever_happens_the_promises_hold_for_parts_in_long_stories():
    run_state_machine_as_test(OfParts, settings=NIGHTLY)


MUTANTS = {
    "parts of one card": (Device, "place", property(lambda self: self.node)),
    "a step of the class": (Lease, "fit", lambda self, number: min(number, self.count)),
}


@pytest.mark.nightly
@pytest.mark.parametrize("rule_broken", MUTANTS)
def test_a_mutant_of_a_rule_of_parts_is_found(rule_broken, monkeypatch):
    monkeypatch.setattr(*MUTANTS[rule_broken])
    with pytest.raises((AssertionError, BrokenPromise)):
        run_state_machine_as_test(OfParts, settings=FOUND)
