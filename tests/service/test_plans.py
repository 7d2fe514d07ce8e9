"""Plans are kept with what they were made from, and each decision can be told afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from gpulease.errors import GPULeaseError
from gpulease.policy.explanation.decision import decision
from gpulease.policy.model import Action, Alert, Bound, Snapshot
from gpulease.policy.planner import plan
from gpulease.service.rounds.plans import Plans, last_spread
from gpulease.store import Ages, KeptPlan, snapshots
from gpulease.store.engine import make_engine
from tests.policy.build import NOW, cards, policy
from tests.policy.world import Habit, World
from tests.service import kit
from tests.service.kit import Site, active_lease

DAY = timedelta(days=1)


class Seen(World):
    """A world that remembers what was planned from."""

    seen: Snapshot

    def snapshot(self) -> Snapshot:
        self.seen = super().snapshot()
        return self.seen


def history(ticks: int = 120) -> tuple[list[tuple[Snapshot, list[Action]]], list[KeptPlan]]:
    """Let a small world live; return what was planned from what, and what was kept of it."""
    world = Seen(policy(), list(cards(3)))
    packer, kept, planned = Plans(), [], []
    for tick in range(ticks):
        if tick % 6 == 0:
            world.ask(
                f"user{tick % 5}", Habit(works=20.0 + tick, drain="blocked" if tick % 4 else "done")
            )
        actions = world.step()
        snapshot = more(world.seen, tick)
        found = packer.packed(snapshot, actions)
        assert (found is None) == all(isinstance(each, Alert) for each in actions)
        if found is not None:
            packer.kept(found)
            kept.append(found.plan)
            planned.append((snapshot, actions))
    return planned, kept


def more(snapshot: Snapshot, tick: int) -> Snapshot:
    """Return the snapshot with what the world does not make."""
    takes = {("l001", "t4"): {1: Decimal("1.5"), 2: Decimal(3)}}
    return replace(
        snapshot,
        use={("physics", "ann", "cards"): 0.1 * tick},
        spent={("physics", "ann"): 3.25},
        away=(NOW, snapshot.now) if tick % 5 else None,
        preferred_nodes={"l001": "n1"} if tick % 3 else {},
        contended={"cards": (NOW, snapshot.now)},
        bounds=(Bound("quota of hub", Decimal("0.3"), takes),) if tick % 2 else (),
    )


def test_what_is_kept_is_the_snapshot_again_and_plans_the_same():
    planned, kept = history()
    wholes = sum(each.whole for each in kept)
    assert 1 < wholes < len(kept) / 2, "some are whole, most are differences"
    size = sum(len(each.body) for each in kept)
    whole = [snapshots.packed(None, s, a) for s, a in planned]
    assert size < sum(map(len, whole))
    reader = snapshots.Reader()
    for (snapshot, actions), row in zip(planned, kept, strict=True):
        reader.read(row.body, whole=row.whole)
        found = reader.kept
        for name in Snapshot.__dataclass_fields__:
            one, other = getattr(found.snapshot, name), getattr(snapshot, name)
            assert one == other or sorted(one, key=str) == sorted(other, key=str), name
        decided = [each for each in actions if not isinstance(each, Alert)]
        assert list(found.actions) == decided
        plain = replace(found.snapshot, bounds=(), preferred_nodes={})
        again = plan(replace(plain, use={}, spent={}, contended={}, away=None))
        assert [each for each in again if not isinstance(each, Alert)] == decided


def test_every_member_of_a_snapshot_is_kept():
    assert {"now", *snapshots.SECTIONS} == set(Snapshot.__dataclass_fields__)


def test_a_plan_that_was_not_stored_is_none_that_the_next_one_builds_on():
    planned, _ = history(30)
    packer = Plans()
    first = packer.packed(*planned[0])
    second = packer.packed(*planned[1])  # the store did not take the first
    assert first is not None
    assert second is not None
    assert first.plan.whole
    assert second.plan.whole


def test_what_cannot_be_packed_is_carried_out_all_the_same(caplog):
    planned, _ = history(30)
    snapshot, actions = planned[0]
    broken: Any = replace(snapshot, preferred_nodes={"l001": object()})
    packer = Plans()
    assert packer.packed(broken, actions) is None
    assert "could not be packed" in caplog.text
    found = packer.packed(snapshot, actions)
    assert found is not None
    assert found.plan.whole


def test_each_decision_names_its_inputs():
    planned, _ = history()
    told = [
        (action, made)
        for snapshot, actions in planned
        for action in actions
        if not isinstance(action, Alert)
        if (made := decision(snapshot, actions, action.lease_id)) is not None
    ]
    kinds = {type(action).__name__ for action, _ in told}
    assert {"Start", "Activate", "Warn", "Drain", "End", "Wait"} <= kinds
    for action, made in told:
        assert made.numbers["action"] == type(action).__name__
        assert made.numbers["pool"] == "cards"
        assert made.words[0].startswith("GPUs of pool cards: 3, free: ")
    warned = [
        made for action, made in told if type(action).__name__ == "Warn" and made.numbers.get("for")
    ]
    assert warned, "somebody was asked to leave for somebody else"
    for made in warned:
        assert made.numbers["idle"] >= made.numbers["idle_limit"] == 120
        assert made.words[-1].startswith(f"It was taken for request {made.numbers['for']} of user")
    waits = [made for action, made in told if type(action).__name__ == "Wait"]
    assert all(made.numbers["position"] >= 1 for made in waits)
    assert decision(*planned[0], "nobody") is None


async def test_why_a_lease_was_decided_about_is_told_to_admins_alone(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    admin = site.client(site.hub.admin_token())
    page = await admin.call("GET", f"leases/{lease['id']}/why?limit=50")
    assert page["total"] == len(page["items"]) >= 3
    started = next(
        each for each in page["items"] if each["to"] == "starting" and each["from"] == "queued"
    )
    assert started["planned"]
    assert started["numbers"]["free"] >= 1
    assert started["numbers"]["action"] == "Start"
    asked = page["items"][-1]
    assert (asked["who"], asked["planned"], asked["inputs"]) == ("stu", False, [])
    told = await admin.decisions(lease["id"], last=2)
    assert [each["version"] for each in told] == [each["version"] for each in page["items"][1::-1]]

    services = site.service.services
    later = NOW + 5000 * DAY
    while await services.ledger.call(services.ledger.store.sweep, later, Ages()):
        pass
    again = await admin.call("GET", f"leases/{lease['id']}/why")
    assert not any(each["inputs"] for each in again["items"])
    assert any(each["planned"] for each in again["items"]), "it is said that there was a plan"

    with pytest.raises(GPULeaseError) as refused:
        await site.client(site.hub.server_token("stu")).call("GET", f"leases/{lease['id']}/why")
    assert refused.value.status == 403
    await supervisor.close()
    await channel.close()


async def test_how_far_waits_end_from_what_was_expected_is_known_after_a_restart(run) -> None:
    async with run() as site:
        site.service.services.loop._waits.spread = (-0.5, 0.25)
        _, channel, supervisor = await active_lease(site)  # a plan that is kept
        await supervisor.close()
        await channel.close()
    async with run() as again:
        assert again.service.services.loop.shown().wait_spread == (-0.5, 0.25)


async def test_a_last_plan_that_cannot_be_read_is_no_reason_not_to_start(run, tmp_path) -> None:
    async with run() as site:
        _, channel, supervisor = await active_lease(site)
        await supervisor.close()
        await channel.close()
        address = kit.options(tmp_path).database_url
    engine = make_engine(address)
    with engine.begin() as connection:
        connection.execute(sa.text("update plans set body = x'00'"))
    engine.dispose()
    assert last_spread(address) is None
    async with run() as again:
        assert again.service.services.loop.shown().wait_spread is None
