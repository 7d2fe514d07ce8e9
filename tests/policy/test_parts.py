"""Parts of cards: 70% of one, 40% of another; a lease that gives a part rather than all."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import admission, admission_check, budgets, document, fitting, lifecycle
from gpulease.policy import capacity as dividing
from gpulease.policy.document.edit import differences
from gpulease.policy.explanation.explain import explain, of_wish
from gpulease.policy.lifecycle import apply
from gpulease.policy.model import (
    Device,
    GPUClass,
    Lease,
    LeaseState,
    Pool,
    Reshape,
    Shape,
    Start,
    Warn,
)
from gpulease.policy.planner import plan
from gpulease.policy.reclaim import over_quota
from tests.helpers import draws
from tests.policy.build import NOW, OUTS, active, at, busy, policy, request, seen, snapshot
from tests.policy.fairness.build import asks, holds, project, shared
from tests.policy.mutants import without_shrinking
from tests.policy.reservations.build import window
from tests.policy.test_state_machine import OUTS as SHORT
from tests.policy.test_state_machine import Site
from tests.policy.world import Habit

TEN = 10


def offered(outs=OUTS):
    """A pool of tenths of cards, with 70% (or 40 %), 40 % and whole cards of it on offer."""
    sizes = {"large": (7, (4,)), "small": (4, ()), "whole": (10, (7, 4, 2))}
    return {
        "pools": (Pool("cards", parts=TEN),),
        "classes": tuple(
            GPUClass(
                name, "cards", name, time_outs=outs, parts=parts, card_parts=TEN, steps=steps,
                price=2.0, memory=parts * 2**30,
            )
            for name, (parts, steps) in sizes.items()
        ),
        "default_class": "large",
    }  # fmt: skip


POLICY = policy(**offered())


def tenths(number, **changed):
    """So many cards, in parts."""
    whole = [Device(f"GPU-{n}", "cards", **changed) for n in range(number)]
    return tuple(dividing.with_parts(whole, {"cards": TEN}))


def parts_of(card, first, last):
    return tuple(dividing.parts_of(f"GPU-{card}", TEN)[first:last])


def wants(number, parts, steps=(), **changed):
    least = min(steps, default=0)
    return request(
        number, gpu_class={7: "large", 4: "small", 10: "whole"}[parts], count=parts,
        card_parts=TEN, steps=tuple(steps), min_count=least, **changed,
    )  # fmt: skip


def planned(leases, devices, **changed):
    view = snapshot(
        leases,
        devices,
        {x.id: busy() for x in leases if x.devices},
        **{"policy": POLICY, **changed},
    )
    return {each.lease_id: each for each in plan(view)}


def ask(**wish):
    return admission_check.answer(
        admission_check.Ask("ann", "", **wish),
        snapshot([], tenths(1), policy=POLICY),
        "r1",
        (NOW, 1),
    ).lease


# What is asked for


def test_a_class_that_is_a_part_is_asked_for_as_one_gpu():
    lease = ask()
    assert (lease.gpu_class, lease.count, lease.card_parts) == ("large", 7, TEN)
    assert (lease.min_count, lease.steps) == (0, ())


@pytest.mark.parametrize(
    ("least", "steps"), [(1, (7, 4, 2)), (20, (7, 4, 2)), (40, (7, 4)), (41, (7,)), (100, ())]
)
def test_it_becomes_no_smaller_than_was_allowed(least, steps):
    lease = ask(gpu_class="whole", at_least=least)
    assert (lease.steps, lease.min_count) == (steps, min(steps, default=0))


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"count": 2}, "70% of one card"),
        ({"nodes": 2}, "70% of one card"),
        ({"min_count": 1}, "70% of one card"),
        ({"at_least": 55}, "no step of 55%"),
        ({"gpu_class": "small", "at_least": 30}, "no step of 30%"),
    ],
)
def test_what_is_no_part_is_refused(wish, said):
    with pytest.raises(GPULeaseError, match=said) as found:
        ask(**wish)
    assert (found.value.reason, found.value.status) == ("bad_count", 422)
    assert "GPUs" not in str(found.value)


def test_whole_gpus_have_no_smaller_steps():
    with pytest.raises(GPULeaseError, match="whole one"):
        admission_check.check(admission_check.Ask("ann", "", at_least=40), snapshot([], 1))


def test_the_same_ask_again_is_the_same_lease():
    lease = active(1, count=7, devices=parts_of(0, 0, 7), card_parts=TEN, gpu_class="large")
    view = snapshot([lease], tenths(1), policy=POLICY)
    again = admission_check.answer(admission_check.Ask(lease.user, ""), view, "r2", (NOW, 2))
    assert not again.new
    with pytest.raises(GPULeaseError, match="70% of a card"):
        admission_check.answer(admission_check.Ask(lease.user, "", "small"), view, "r2", (NOW, 2))


# Where it is


states = st.lists(st.integers(0, TEN), min_size=1, max_size=4)
sizes = st.lists(st.sampled_from([4, 7, 10]), min_size=1, max_size=6)


def standing(taken):
    """Return leases that hold so many parts of each card, busy."""
    return [
        active(
            100 + n, devices=parts_of(n, 0, number), count=number, card_parts=TEN,
            gpu_class="large", pool="cards",
        )
        for n, number in enumerate(taken)
        if number
    ]  # fmt: skip


@settings(max_examples=draws(100))
@given(taken=states, size=st.sampled_from([4, 7, 10]))
def test_a_part_opens_no_whole_card_while_another_one_has_room(taken, size):
    step = planned([*standing(taken), wants(1, size)], tenths(len(taken))).get("r1")
    room = [TEN - number for number in taken]
    fitting_here = [left for left in room if left >= size]
    assert isinstance(step, Start) == bool(fitting_here)
    if fitting_here:
        there = {dividing.card_of(uuid) for uuid in step.devices}
        assert (len(there), len(step.devices)) == (1, size)
        (card,) = there
        # The fullest one that does: a whole card only where all others are too full.
        assert room[int(card.removeprefix("GPU-"))] == min(fitting_here)


@settings(max_examples=draws(100))
@given(taken=states, asked=sizes, kinds=st.lists(st.booleans(), min_size=4, max_size=4))
def test_whatever_is_asked_for_each_has_its_parts_of_one_card(taken, asked, kinds):
    """Also where the cards are not alike: a more versatile one that others use comes first."""
    devices = tuple(
        replace(d, ecc=kinds[int(d.card.removeprefix("GPU-"))]) for d in tenths(len(taken))
    )
    leases = [wants(n, size) for n, size in enumerate(asked)]
    found = planned([*standing(taken), *leases], devices)
    left = Counter({n: TEN - number for n, number in enumerate(taken)})
    for lease in leases:
        step = found.get(lease.id)
        if not isinstance(step, Start):
            continue
        (card,) = {int(dividing.card_of(u).removeprefix("GPU-")) for u in step.devices}
        if left[card] == TEN and lease.count < TEN:
            assert all(not lease.count <= n < TEN for n in left.values()), "opens no whole card"
        left[card] -= len(step.devices)
    assert min(left.values()) >= 0


def test_a_mutant_that_opens_whole_cards_is_found(monkeypatch):
    monkeypatch.setattr(
        fitting, "of_one_node",
        lambda nodes, count, *_: next(
            (list(there[:count]) for _, there in sorted(nodes.items()) if len(there) >= count), []
        ),
    )  # fmt: skip
    with pytest.raises(AssertionError):
        without_shrinking(test_a_part_opens_no_whole_card_while_another_one_has_room, monkeypatch)()


def test_a_mutant_that_takes_parts_of_several_cards_is_found(monkeypatch):
    monkeypatch.setattr(Device, "place", property(lambda self: self.node))
    with pytest.raises((AssertionError, ExceptionGroup)):
        without_shrinking(test_a_part_opens_no_whole_card_while_another_one_has_room, monkeypatch)()


def test_a_mutant_that_asks_not_whether_a_card_is_whole_is_found(monkeypatch):
    """With cards that are not alike the least versatile one would be opened."""
    plain = fitting.of_one_node

    def blind(nodes, count, preferred=fitting._NO_PREFERENCE):
        bare = {n: [replace(d, card_parts=0) for d in there] for n, there in nodes.items()}
        chosen = {d.uuid for d in plain(bare, count, preferred)}
        return [d for there in nodes.values() for d in there if d.uuid in chosen]

    monkeypatch.setattr(fitting, "of_one_node", blind)
    with pytest.raises(AssertionError):
        without_shrinking(test_whatever_is_asked_for_each_has_its_parts_of_one_card, monkeypatch)()


def test_a_whole_card_waits_for_no_part_that_could_stand_elsewhere():
    """Two fractions share a card, and the second card stays whole for who asks for one."""
    found = planned([wants(1, 4), wants(2, 4), wants(3, 10)], tenths(2))
    assert {dividing.card_of(u) for u in (*found["r1"].devices, *found["r2"].devices)} == {"GPU-0"}
    assert found["r3"].devices == parts_of(1, 0, TEN)


def test_a_whole_card_is_gathered_from_parts_as_a_gang_is():
    """While it is the turn of who wants all of it, nobody takes what came free of the card."""
    old = wants(1, 10, ticket=(at(-700), 1))
    later = wants(2, 4, ticket=(at(-10), 2))
    found = planned([*standing([4]), old, later], tenths(1))
    assert not any(isinstance(each, Start) for each in found.values())
    young = wants(1, 10, ticket=(at(-60), 1))
    found = planned([*standing([4]), young, later], tenths(1))
    assert isinstance(found["r2"], Start)


# Smaller, and larger again


TWO = replace(shared(project("phys", 1), project("bio", 5)), **offered())


def large(steps=(4,), parts=7, **changed):
    return holds(
        0, "phys", devices=parts_of(0, 0, parts), count=parts, card_parts=TEN, gpu_class="large",
        steps=steps, min_count=min(steps, default=0), hard_end=at(9999), **changed,
    )  # fmt: skip


def small(number=9):
    return asks(number, "bio", count=4, gpu_class="small", card_parts=TEN)


def test_it_goes_on_with_a_step_of_its_class_where_that_is_enough():
    """One part is missing, but its class has 40 %, not 60 %."""
    warning = planned([large(), small()], tenths(1), policy=TWO)["r0"]
    assert isinstance(warning, Warn)
    assert (warning.reason, warning.becomes) == (
        "preempted_in_part",
        Shape("large", parts_of(0, 0, 4)),
    )
    said = explain(apply(large(), warning, NOW, OUTS), TWO)
    assert "you keep 40% of the card" in said.sentence


def test_without_leave_all_of_it_goes():
    warning = planned([large(()), small()], tenths(1), policy=TWO)["r0"]
    assert (warning.reason, warning.becomes) == ("preempted", None)


@given(
    steps=st.lists(st.integers(1, 9), unique=True, min_size=1, max_size=3),
    wanted=st.integers(1, 5),
)
def test_nobody_loses_more_than_the_next_step(steps, wanted):
    steps = tuple(sorted(steps, reverse=True))
    lease = large(steps, TEN)
    one = asks(9, "bio", count=wanted, gpu_class="small", card_parts=TEN)
    warning = planned([lease, one], tenths(1), policy=TWO)["r0"]
    enough = [each for each in steps if each <= TEN - wanted]
    assert warning.becomes == (Shape("large", parts_of(0, 0, max(enough))) if enough else None)


def test_a_mutant_that_takes_any_number_of_parts_is_found(monkeypatch):
    monkeypatch.setattr(Lease, "giving_up", lambda self, wanted: wanted)
    monkeypatch.setattr(Lease, "fit", lambda self, number: number)
    with pytest.raises(AssertionError):
        without_shrinking(test_nobody_loses_more_than_the_next_step, monkeypatch)()


def test_a_mutant_that_skips_a_step_is_found(monkeypatch):
    monkeypatch.setattr(
        over_quota, "next_parts", lambda loans: sorted(loans, key=lambda x: -x.part)
    )
    with pytest.raises(AssertionError):
        without_shrinking(test_nobody_loses_more_than_the_next_step, monkeypatch)()


def test_a_lab_takes_a_step_too():
    """What a window needs of the pool is given by a step of the class, or all of it goes."""
    lease = active(
        0, devices=parts_of(0, 0, 7), count=7, card_parts=TEN, steps=(4,), min_count=4,
        gpu_class="large", pool="cards",
    )  # fmt: skip
    lab = window("lab", 0.0, 600.0, seats=5, lead=60)
    lab = replace(lab, pool="cards")
    warning = planned([lease], tenths(1), windows=(lab,))["r0"]
    assert (warning.reason, warning.becomes) == (
        "reserved_in_part",
        Shape("large", parts_of(0, 0, 4)),
    )


LASTING = replace(SHORT, hard_length=9999, busy_max=9999)
SITE = replace(TWO, time_outs=LASTING, **offered(LASTING))


@settings(max_examples=draws(3))
@given(drain=st.sampled_from(["done", "blocked", "silent"]), release=st.sampled_from([5, 30]))
def test_a_whole_story_keeps_every_promise(drain, release):
    """70 % and 40% of one card: it shrinks for the other, and grows at its person's word."""
    site = Site(SITE, list(tenths(1)))
    uses = Habit(start=5, works=10_000, drain=drain, release=release)
    site.ask_as("a", uses, groups=("phys",), at_least=40)
    for _ in range(20):
        site.step()
    (first,) = site.leases.values()
    assert (first.state, first.count) == (LeaseState.ACTIVE, 7)
    other = Habit(start=0, works=10_000, returns=400)
    site.ask_as("b", other, groups=("bio",), gpu_class="small")
    for _ in range(60):
        site.step()
    mine, theirs = site.leases.values()
    assert (mine.id, mine.state, mine.count) == (first.id, LeaseState.ACTIVE, 4)
    assert (mine.hard_end, mine.active_since) == (first.hard_end, first.active_since)
    assert (theirs.state, theirs.count) == (LeaseState.ACTIVE, 4)
    assert len({site.snapshot().devices[0].card}) == 1
    for _ in range(60):
        site.step()
    assert site.leases[mine.id].count == 4, "it grows on its person's word only"
    shape = admission.granted(site.snapshot(), site.leases[mine.id])
    assert shape.count == 7
    outs = lifecycle.time_outs_of(SITE, mine)
    site._put(lifecycle.reshape(site.leases[mine.id], shape, site.now, outs))
    site.drain_sent[mine.id] = site.now
    for _ in range(60):
        site.step()
    after = site.leases[mine.id]
    assert (after.state, after.count) == (LeaseState.ACTIVE, 7 if drain == "done" else 4)


def test_it_starts_with_a_step_where_no_card_has_more_room():
    """Six parts are free: 40 %, which its class has, and not 60 %, which it has not."""
    step = planned([*standing([4]), wants(1, 7, (4,))], tenths(1))["r1"]
    assert isinstance(step, Start)
    assert len(step.devices) == 4
    started = apply(wants(1, 7, (4,)), step, NOW, OUTS)
    assert (started.count, started.asked_count) == (4, 7)
    said = explain(replace(started, state=LeaseState.ACTIVE, reason="connected"), POLICY)
    assert "You have 40% of a card, of the 70% that you asked for." in said.sentence


def test_it_starts_on_the_fullest_card_that_has_room_for_its_step():
    step = planned([*standing([4, 6]), wants(1, 7, (4,))], tenths(2))["r1"]
    assert {dividing.card_of(u) for u in step.devices} == {"GPU-1"}


def test_it_is_offered_its_wish_and_no_size_between():
    mine = active(
        0, devices=parts_of(0, 0, 4), count=4, asked_count=7, card_parts=TEN, steps=(4,),
        min_count=4, gpu_class="large", pool="cards",
    )  # fmt: skip
    view = snapshot([mine], tenths(1), policy=POLICY)
    (shape,) = admission.within_reach(view).values()
    assert shape.count == 7
    assert "70% of a card (large) is free now" in of_wish(shape, mine, POLICY)
    assert of_wish(shape, replace(mine, becomes=shape), POLICY) == "", "it is on its way there"
    assert "a click moves you there" in of_wish(None, mine, POLICY)
    assert of_wish(None, replace(mine, asked_count=0), POLICY) == "", "it is what was asked for"
    rest = active(
        1, devices=parts_of(0, 6, 10), count=4, card_parts=TEN, gpu_class="small", pool="cards"
    )
    assert admission.within_reach(snapshot([mine, rest], tenths(1), policy=POLICY)) == {}


def test_a_reshaped_lease_starts_again_on_the_same_card():
    lease = apply(large(), planned([large(), small()], tenths(1), policy=TWO)["r0"], NOW, OUTS)
    lease = replace(lease, warned_until=NOW)
    lease = apply(lease, planned([lease, small()], tenths(1), policy=TWO)["r0"], NOW, OUTS)
    home = [seen(lease, drained="done")]
    step = planned([lease, small()], tenths(1), policy=TWO, observed=home)["r0"]
    assert isinstance(step, Reshape)
    after = apply(lease, step, NOW, OUTS)
    said = explain(after, TWO)
    assert "40% of a card is kept for you" in said.sentence
    found = planned([after, small()], tenths(1), policy=TWO)
    assert found["r0"].devices == parts_of(0, 0, 4)
    assert set(found["r9"].devices) <= set(parts_of(0, 4, 10))
    assert len(found["r9"].devices) == 4


# What it costs


def test_a_part_of_a_card_costs_its_part_of_the_price():
    step = planned([wants(1, 7)], tenths(1))["r1"]
    started = apply(wants(1, 7), step, NOW, OUTS)
    ran = replace(started, state=LeaseState.ACTIVE, charged_from=at(-3600))
    assert budgets.charged(ran, at(-3600), NOW) == pytest.approx(0.7 * 2.0)


# The document


TEXT = """\
pools: {cards: {evidence: cells, parts: 10}}
classes:
  large: {pool: cards, parts: 7, steps: [4], pod: {hami: {}}}
  whole: {pool: cards, steps: [7, 4]}
"""


def test_the_document_is_read_and_written_alike():
    found = document.parse(TEXT)
    assert (found.pools[0].parts, found.parts) == (10, {"cards": 10})
    sizes = [(c.parts, c.card_parts, c.steps, c.most) for c in found.classes]
    assert sizes == [(7, 10, (4,), 7), (10, 10, (7, 4), 10)]
    assert found.classes[0].pod.slot_units == 1
    assert document.parse(document.dump(found)) == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("parts: 10", "parts: 1"), "2 to 100 parts"),
        (("parts: 10", "parts: 101"), "at most 100"),
        (("parts: 10", "parts: 10, elastic: {max: 20}"), "does not grow"),
        (("parts: 10", "spare: 0"), "have no parts"),
        (("parts: 7", "parts: 11"), "has 10 parts"),
        (("parts: 7", "parts: 7, max_count: 2"), "has one card"),
        (("parts: 7", "parts: 7, warm: {pods: 1}"), "No pods stand ready"),
        (("parts: 7", "parts: 7, fallback: [whole]"), "not have the same parts"),
        (("{hami: {}}", "{queue: {kueue: team}}"), "A cluster's queue knows no parts"),
        (("steps: [4]", "steps: [7]"), "fewer than 7"),
        (("steps: [4]", "steps: [x]"), "not a whole number"),
        (("steps: [4]", "steps: [0]"), "at least 1"),
        (("hami: {}", "kind: shared"), "time slices have no size"),
        (("hami: {}", "hami: {memory_percent: 70}"), "say the class's parts"),
        (("parts: 10", "parts: 4"), "as 10 devices"),
    ],
)
def test_what_does_not_go_with_parts_is_said_at_its_line(change, said):
    found = document.check(TEXT.replace(*change))
    assert any(said in each.message for each in found), found


def test_changes_are_told():
    before, after = (
        document.parse(TEXT),
        document.parse(TEXT.replace("steps: [4]", "steps: [5, 4]")),
    )
    assert differences(before, after) == ["for class large: set steps from 4 to 5, 4"]


def test_devices_are_divided_and_put_together_again():
    whole = (Device("GPU-0", "cards"), Device("GPU-1", "others"))
    parts = tuple(dividing.with_parts(whole, {"cards": 4}))
    assert [d.uuid for d in parts] == [*dividing.parts_of("GPU-0", 4), "GPU-1"]
    assert tuple(dividing.with_parts(parts, {"cards": 4})) == parts
    assert tuple(dividing.with_parts(parts, {})) == whole
