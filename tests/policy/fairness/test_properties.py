"""The contract's properties of shares, in sites that hypothesis invents, on a virtual clock."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import ceil

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpulease.policy import lifecycle
from gpulease.policy.fairness import standing
from gpulease.policy.model import EndReason, LeaseState
from tests.helpers import draws
from tests.policy.fairness.build import project, shared
from tests.policy.fairness.site import OUTS, STRIDE, Site


def site(devices, *projects, **changed):
    return Site(shared(*projects, outs=OUTS), devices, **changed)


def test_a_guarantee_is_restored_in_bounded_time_however_busy_the_borrower_is():
    place = site(3, project("phys", 1), project("bio", 2))
    for n in range(3):
        place.want("phys", f"p{n}")
    place.run(2)
    assert place.held("phys") == 3
    mine = [place.want("bio", "b"), place.want("bio", "b")]
    # A warning, a drain, a start and the word that it is up take a stride each.
    place.run(ceil(OUTS.minimum_runtime / STRIDE) + 4)
    assert all(place.leases[x.id].state is LeaseState.ACTIVE for x in mine)
    place.run(10)
    assert (place.held("phys"), place.held("bio")) == (1, 2)
    assert place.preempted.total() == 2


def test_where_more_is_guaranteed_than_there_is_what_comes_free_goes_to_who_has_least():
    place = site(4, *(project(f"p{n}", 2) for n in range(3)))
    first = [place.want(f"p{n // 2}", f"u{n}") for n in range(4)]
    place.run(2)
    place.want("p2", "late")
    place.run(10)
    assert place.preempted == Counter(), "what is used within a guarantee stays"
    assert place.held("p2") == 0
    place.put(lifecycle.end(place.leases[first[0].id], EndReason.RETURNED, place.now))
    place.run(1)  # p0 asks again as well
    assert [place.held(f"p{n}") for n in range(3)] == [1, 2, 1]


rows = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1.0, 1.0, 2.0, 3.0])), min_size=2, max_size=4
)


@settings(max_examples=draws(15), deadline=None)
@given(rows, st.integers(2, 6), st.randoms(use_true_random=False), st.booleans())
def test_busy_projects_come_to_their_shares_and_then_nothing_moves_to_and_fro(
    given_rows, devices, random, deep
):
    """Demand saturates and weights are frozen: each project has its part, within one unit."""
    assume(sum(guarantee for guarantee, _ in given_rows) <= devices)
    top = [project("top")] if deep else []
    projects = [
        project(f"p{n}", guarantee, weight=weight, parent="top" if deep and n < 2 else "")
        for n, (guarantee, weight) in enumerate(given_rows)
    ]
    place = site(devices, *top, *projects)
    order = [f"p{n}" for n in range(len(projects)) for _ in range(devices)]
    random.shuffle(order)
    for number, name in enumerate(order):
        place.want(name, f"u{number % 2}-{name}")
        if number == len(order) // 2:
            place.run(2)
    place.run(12)
    place.preempted.clear()
    place.run(5)
    assert place.preempted == Counter(), "nothing moves once everybody has what is theirs"
    tree = standing(place.snapshot())["cards"]
    for each in projects:
        above = tree.root.below["top"] if each.parent else tree.root
        assert abs(place.held(each.name) - above.below[each.name].target) < 1.0 + 1e-9
    if sum(each.share("cards").guarantee for each in projects) <= devices:
        assert all(place.held(p.name) >= p.share("cards").guarantee for p in projects)


@settings(max_examples=draws(3), deadline=None)
@given(rows, st.integers(1, 2))
def test_nobody_starves(given_rows, over):
    """Everybody works for a while, gives the GPU back and asks again at once.

    Who has no guarantee lives on what is not guaranteed to others; where that is nothing, so is it.
    """
    devices = over + sum(guarantee for guarantee, _ in given_rows)
    projects = [project(f"p{n}", g, weight=w) for n, (g, w) in enumerate(given_rows)]
    place = site(devices, *projects, returns=STRIDE)
    wishes = [place.want(each.name, f"{each.name}-{n}") for each in projects for n in (0, 1)]
    place.run(40)
    waiting = {x.id for x in place.leases.values() if x.state is LeaseState.QUEUED}
    assert waiting.isdisjoint(wish.id for wish in wishes)


def test_with_decay_a_device_changes_hands_at_most_once_a_minimum_runtime():
    """Who used more of late has a smaller share, so devices go to and fro: as seldom as this."""
    outs = replace(OUTS, minimum_runtime=10 * STRIDE)
    policy = shared(project("phys"), project("bio"), outs=outs)
    forgetful = replace(policy.projects, strength=20.0, half_life=200.0)
    place = Site(replace(policy, projects=forgetful), 6, remembers=True)
    for n in range(6):
        place.want("phys", f"p{n}")
    place.run(3)
    for n in range(6):
        place.want("bio", f"b{n}")
    taken = []
    for _ in range(60):
        place.preempted.clear()
        place.stride()
        taken += [(device, place.now) for device in place.preempted]
    found = {device: [when for each, when in taken if each == device] for device, _ in taken}
    assert sum(len(times) > 2 for times in found.values()) > 3, "who used less gets a turn"
    for times in found.values():
        apart = [(b - a).total_seconds() for a, b in pairwise(times)]
        assert all(seconds >= outs.minimum_runtime for seconds in apart)
