"""Sums of what was charged, and who is told that a budget runs out."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gpulease.policy.budgets import Use, spent
from gpulease.policy.projects import Budget
from gpulease.service.leases.usage import UsageSums, sums
from gpulease.service.notices import Notice
from tests.policy.build import snapshot
from tests.policy.fairness.build import project, shared

EVENING = datetime(2026, 3, 28, 20, 0, tzinfo=UTC)  # 21:00 in Berlin, the clocks change at night
BERLIN = ZoneInfo("Europe/Berlin")


def use(user="ann", name="phys", hours=1.0, units=1, price=1.0, **changed) -> Use:
    until = EVENING + timedelta(hours=hours)
    return Use("r1", user, name, "t4", "cards", units, price, EVENING, until, **changed)


def test_devices_and_prices_multiply_and_groups_add_up():
    uses = [use(units=2, price=3.0), use(hours=2), use("bob", "bio", estimated=True)]
    rows = sums(uses, EVENING, EVENING + timedelta(days=1), ["project"], BERLIN)
    assert rows == [
        {"project": "bio", "hours": 1.0, "gpu_hours": 1.0, "estimated": True},
        {"project": "phys", "hours": 4.0, "gpu_hours": 8.0, "estimated": False},
    ]


def test_a_lease_over_midnight_is_cut_at_the_zones_own_midnight():
    """The night in which the clocks change: three hours of the 28th, 23 of the 29th, then one."""
    rows = sums([use(hours=27)], EVENING, EVENING + timedelta(days=9), ["day"], BERLIN)
    assert [(row["day"], row["hours"]) for row in rows] == [
        ("2026-03-28", 3.0), ("2026-03-29", 23.0), ("2026-03-30", 1.0),
    ]  # fmt: skip


def test_parts_of_cards_add_up_to_whole_ones():
    """70 % and 30% of a card for two hours are two hours of a card, at a tenth of its price."""
    uses = [use(hours=2, units=7, price=0.2), use("bob", "phys", hours=2, units=3, price=0.2)]
    day = EVENING + timedelta(days=1)
    (row,) = sums(uses, EVENING, day, ["project"], BERLIN, parts={"cards": 10})
    assert (row["hours"], row["gpu_hours"]) == (2.0, 4.0)


def test_only_the_time_that_is_asked_for_counts():
    rows = sums(
        [use(hours=10)],
        EVENING + timedelta(hours=2),
        EVENING + timedelta(hours=5),
        ["person", "class"],
        BERLIN,
    )
    assert rows == [
        {"person": "ann", "class": "t4", "hours": 3.0, "gpu_hours": 3.0, "estimated": False}
    ]


class KeptNotes:
    """A ledger whose store outlives each service."""

    def __init__(self) -> None:
        self.store, self.notes = self, dict[str, str]()
        self.note = self.notes.__setitem__
        self.noted = lambda name: self.notes.get(name, "")

    async def read(self, *_, **__):
        return [], 0  # nothing was charged

    async def call(self, work, *arguments, **more):
        return work(*arguments, **more)


async def test_a_budget_of_which_most_is_spent_is_told_once_in_a_period():
    said: list[Notice] = []
    policy = shared(
        project("phys", budget=Budget(10, zone="Europe/Berlin", contact=("pi@x.org",))),
        project("bio"),
    )
    ledger = KeptNotes()
    for hours in (7.9, 8.0, 9.0):
        # Each time by a service that was just restarted.
        usage = UsageSums(ledger, lambda: policy, said.append)  # type: ignore[arg-type]
        await usage.load()
        usage.tell_of(snapshot([], policy=policy, spent={("phys", "ann"): hours}), spent)
        await usage.tell_due()
    (notice,) = said
    assert (notice.kind, notice.group, notice.to) == ("budget", "phys", ("pi@x.org",))
    assert notice.sentence == (
        "Project phys has spent 8.0 of its 10 GPU-hours; they last until 08 March."
    )
