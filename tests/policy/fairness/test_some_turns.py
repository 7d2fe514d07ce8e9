"""The turns of some projects are those that they have among all, and cost what these have."""

from random import Random

import pytest

from gpulease.policy.fairness import turns
from gpulease.policy.fairness.fair_order import Turns
from gpulease.policy.model import Snapshot
from tests.policy.build import snapshot
from tests.policy.fairness.build import asks, project, shared
from tests.policy.test_growth import steps

POLICY = shared(
    project("science", 2), project("phys", 1, parent="science"), project("bio", parent="science"),
    project("arts", 1), *(project(f"p{n}", weight=1.0 + n % 3) for n in range(5)),
)  # fmt: skip
NAMES = ("phys", "bio", "arts", "p0", "p1", "p2", "p3", "p4")


def crowd(seed: int, number: int = 60) -> Snapshot:
    random = Random(seed)
    leases = [
        asks(n, random.choice(NAMES), user=f"u{random.randrange(20)}", count=random.choice([1, 2]))
        for n in range(number)
    ]
    return snapshot(leases, 12, policy=POLICY)


@pytest.mark.parametrize("seed", range(20))
def test_some_projects_have_the_turns_that_they_have_among_all(seed: int) -> None:
    view, some = crowd(seed), set(Random(seed).sample(NAMES, 3))
    mine = Turns(view, "cards")
    mine.open(mine.sides & some)
    expected = [each.id for each in turns(view) if each.project in some]
    assert [each.id for each in mine if each.project in some] == expected


@pytest.mark.parametrize("seed", range(20))
def test_who_is_closed_for_a_while_has_lost_those_turns(seed: int) -> None:
    view = crowd(seed)
    every, found = [each.id for each in turns(view)], []
    mine = Turns(view, "cards")
    mine.open(mine.sides)
    for request in mine:
        found.append(request.id)
        if len(found) == 10:
            mine.close("p0")
        if len(found) == 30:
            mine.open({"p0"})
            back = request.id
    gone = [each.id for each in turns(view) if each.id not in found]
    assert found == [each for each in every if each not in gone], "the others' order stays"
    assert {view.leases[int(each[1:])].project for each in gone} <= {"p0"}
    assert all(every.index(each) < every.index(back) for each in gone)


def test_turns_cost_what_those_have_who_are_looked_at() -> None:
    def walk(view: Snapshot) -> None:
        mine = Turns(view, "cards")
        mine.open({"p0"})
        list(mine)

    def site(others: int) -> Snapshot:
        rest = NAMES[4:]
        leases = [asks(n, "p0" if n < 20 else rest[n % 4]) for n in range(20 + others)]
        view = snapshot(leases, 4, policy=POLICY)
        turns(view)  # what is worked out once of a snapshot
        return view

    few, many = steps(walk, site(30)), steps(walk, site(3000))
    assert many <= 1.5 * few, f"{few} steps beside 30 others, {many} beside 3,000"
