"""The loop: one bad action or refused change costs nothing but itself; effects of each change."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.explanation import reasons
from gpulease.policy.model import Activate, EndReason, Lease, LeaseState
from gpulease.service import effects, reconcile
from gpulease.service.links import Links
from tests.helpers import wait_for_async
from tests.service.kit import Site, active_lease

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_an_action_that_cannot_be_applied_does_not_stop_the_others(site: Site, monkeypatch):
    whole = reconcile.plan
    waiting = await site.client(site.hub.server_token("eve")).ask({})
    await site.lease(waiting["id"], "starting")
    await site.client(site.hub.server_token("eve")).end(waiting["id"])
    await site.lease(waiting["id"], "ended")

    def plan(snapshot: Any) -> Any:
        return [Activate(waiting["id"], "connected"), *whole(snapshot)]

    monkeypatch.setattr(reconcile, "plan", plan)
    lease, channel, supervisor = await active_lease(site)
    assert lease
    assert site.service.services.loop.problem == ""
    await channel.close()
    await supervisor.close()


async def test_a_change_that_the_store_refuses_costs_only_itself(site: Site, monkeypatch) -> None:
    store = site.service.services.ledger.store
    whole = store.save
    one = await site.client(site.hub.server_token("stu")).ask({})
    refused: list[str] = []

    def save(changes: Any, now: datetime) -> None:
        if any(change.after.id == one["id"] for change in changes):
            refused.append(one["id"])
            numbers = {"leases": [one["id"]]}
            raise GPULeaseError("version_conflict", "It changed.", status=409, numbers=numbers)
        whole(changes, now)

    await site.lease(one["id"], "starting")
    monkeypatch.setattr(store, "save", save)
    services = site.service.services
    report = {"lease_id": one["id"], "attempt": 1, "state": "failed"}
    services.provider.report(reconcile_report(**report))
    two = await site.client(site.hub.server_token("eve")).ask({})
    await site.lease(two["id"], "starting")
    await wait_for_async(lambda: refused, 30, "the refusal")
    assert services.loop.problem == ""
    monkeypatch.undo()
    await site.lease(one["id"], "queued")


async def test_what_a_start_meets_is_told_while_its_stage_stays(site: Site, monkeypatch) -> None:
    """To its holder in a sentence, to admins in the provider's words, to the history not again."""
    services = site.service.services
    whole, words = services.provider.observe, {"detail": "Pulling image", "said": ""}

    async def observe() -> Any:
        return [replace(each, connected=False, stage="pulling", **words) for each in await whole()]

    monkeypatch.setattr(services.provider, "observe", observe)
    told: list[Any] = []
    admin_told: list[Any] = []
    token = site.hub.server_token("stu")
    asked = await site.client(token).ask({})
    follow = [
        asyncio.ensure_future(_follow(site.client(token), told)),
        asyncio.ensure_future(_follow(site.client(site.hub.admin_token()), admin_told)),
    ]
    await wait_for_async(lambda: told and told[-1]["reason"] == "pulling", 30, "the stage")
    rows = services.ledger.store.transitions(asked["id"])
    before = told[-1]
    for said, detail in (("pulled_again", "ErrImagePull: lost"), ("", "Pulling image again")):
        words |= {"said": said, "detail": detail}
        await wait_for_async(
            lambda said=said: told[-1]["sentence"].endswith(
                reasons.PROGRESS[said] or before["sentence"]
            ),
            30,
            "its sentence",
        )
        await wait_for_async(
            lambda detail=detail: admin_told[-1].get("detail") == detail, 30, "the words"
        )
        found = await site.client(site.hub.admin_token()).lease(asked["id"])
        assert found["detail"] == detail
    assert told[-1]["version"] == before["version"]
    assert "detail" not in told[-1]
    assert services.ledger.store.transitions(asked["id"]) == rows
    for each in follow:
        each.cancel()


async def _follow(client: Any, told: list[Any]) -> None:
    async for message in client.events():
        found = message.get("leases") or [message.get("lease")]
        told += [each for each in found if each]


def reconcile_report(**members: Any) -> Any:
    from gpulease.providers.base import SupervisorReport

    return SupervisorReport(**members)


class World(Links):
    """Records what is performed."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.done: list[tuple[str, str]] = []

    async def start(self, lease: Lease) -> None:
        self.done.append(("start", lease.id))

    async def stop(self, lease: Lease) -> None:
        self.done.append(("stop", lease.id))

    def send(self, lease_id: str, message: Any) -> bool:
        self.done.append((message["type"], lease_id))
        return True


def lease(state: LeaseState, **more: Any) -> Lease:
    made = Lease("L", "stu", "", "any", 1, (NOW, 1), NOW, state=state, attempt=1, devices=("G",))
    return replace(made, **more)


QUEUED, STARTING, ACTIVE, WARNED, DRAINING, ENDED = LeaseState
SOON = NOW + timedelta(seconds=9)


@pytest.mark.parametrize(
    ("before", "after", "done"),
    [
        (lease(QUEUED, attempt=0), lease(STARTING), ["start"]),
        (lease(STARTING), lease(QUEUED), ["stop"]),
        (lease(STARTING), lease(ACTIVE), []),
        (lease(STARTING), lease(ENDED), ["stop"]),
        (lease(QUEUED), lease(ENDED), []),
        (lease(ACTIVE), lease(WARNED, warned_until=SOON), ["warn"]),
        (lease(WARNED, warned_until=SOON), lease(ACTIVE), ["clear"]),
        (lease(WARNED, warned_until=SOON), lease(DRAINING, drain_until=SOON), ["drain"]),
        (lease(ACTIVE), lease(DRAINING, drain_until=SOON), ["drain"]),
        (
            lease(DRAINING, drain_until=SOON),
            lease(DRAINING, drain_until=SOON, park=True),
            ["drain"],
        ),
        (lease(DRAINING, drain_until=SOON), lease(DRAINING, drain_until=SOON, version=2), []),
        (lease(DRAINING, drain_until=SOON), lease(ACTIVE), ["resume"]),
        (lease(DRAINING, drain_until=SOON), lease(ENDED, end_reason=EndReason.IDLE), ["stop"]),
        (lease(ACTIVE), lease(ACTIVE, claimed=NOW), []),
    ],
)
async def test_each_change_asks_this_of_the_world(before: Lease, after: Lease, done: list[str]):
    world = World()
    await effects.perform(before, after, world, world)  # type: ignore[arg-type]
    assert [what for what, _ in world.done] == done


async def test_a_service_ends_however_its_loop_is_woken_meanwhile(hub, run) -> None:
    """A cancellation that meets a wake-up must not be swallowed: the service would never end."""
    for _ in range(5):
        async with run(tick=60.0, hub_seconds=60.0) as site:
            services = site.service.services
            await wait_for_async(lambda services=services: services.loop.rounds, 30, "a round")
            services.loop.wake()
            services.servers.joined("stu", "")
