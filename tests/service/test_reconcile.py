"""The loop: one bad action or refused change costs nothing but itself; effects of each change."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy import reasons
from gpulease.policy.explanation import forecast
from gpulease.policy.model import Activate, EndReason, Lease, LeaseState
from gpulease.service.control_loop import deciding
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import history
from tests.helpers import wait_for_async
from tests.service.kit import Server, Site, active_lease

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_an_action_that_cannot_be_applied_does_not_stop_the_others(site: Site, monkeypatch):
    whole = deciding.plan
    waiting = await site.client(site.hub.server_token("eve")).ask({})
    await site.lease(waiting["id"], "starting")
    await site.client(site.hub.server_token("eve")).end(waiting["id"])
    await site.lease(waiting["id"], "ended")

    def plan(snapshot: Any) -> Any:
        return [Activate(waiting["id"], "connected"), *whole(snapshot)]

    monkeypatch.setattr(deciding, "plan", plan)
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

    def save(changes: Any, now: datetime, plan: Any = None) -> None:
        if any(change.after.id == one["id"] for change in changes):
            refused.append(one["id"])
            numbers = {"leases": [one["id"]]}
            raise GPULeaseError("version_conflict", "It changed.", status=409, numbers=numbers)
        whole(changes, now, plan)

    await site.lease(one["id"], "starting")
    monkeypatch.setattr(store, "save", save)
    services = site.service.services
    await wait_for_async(
        lambda: services.loop.observed_state.observed.get(one["id"]), 30, "its start"
    )
    report = {"lease_id": one["id"], "attempt": 1, "state": "failed"}
    assert services.provider.server_started is not None
    services.provider.server_started.report(reconcile_report(**report))
    two = await site.client(site.hub.server_token("eve")).ask({})
    await site.lease(two["id"], "starting")
    await wait_for_async(lambda: refused, 30, "the refusal")
    assert services.loop.problem == ""
    monkeypatch.undo()
    await site.lease(one["id"], "queued")


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let looks at the provider begin, and end only once they may."""

    async def of(site: Site) -> tuple[list[int], asyncio.Event]:
        loop, begun, may_end = site.service.services.loop, [], asyncio.Event()
        await wait_for_async(lambda: loop.rounds, 30, "a first round")
        whole = loop.observer.look

        async def look() -> None:
            begun.append(loop.rounds)
            await may_end.wait()
            await whole()

        monkeypatch.setattr(loop.observer, "look", look)
        await wait_for_async(lambda: begun, 30, "a look")
        return begun, may_end

    return of


async def test_an_ask_is_decided_while_one_looks(hub: Any, run: Any, looking: Any) -> None:
    """A look at thousands of leases takes longer than a plan."""
    async with run(gpus=2) as site:
        begun, may_end = await looking(site)
        for name in ("stu", "eve"):
            lease = await site.client(hub.server_token(name)).ask({})
            await site.lease(lease["id"], "starting")
        assert len(begun) == 1
        may_end.set()


async def test_a_device_that_was_given_back_is_looked_at_before_it_is_given_on(
    hub: Any, run: Any, looking: Any
) -> None:
    """An older look shows nothing of a lease that began since, and something of it may run."""
    async with run(gpus=2) as site:
        _, may_end = await looking(site)
        client = site.client(hub.server_token("stu"))
        first = await client.ask({})
        given_back = (await site.lease(first["id"], "starting")).devices
        await client.end(first["id"])
        await site.lease(first["id"], "ended")
        other = await site.client(hub.server_token("eve")).ask({})
        assert (await site.lease(other["id"], "starting")).devices != given_back
        again = await client.ask({})
        leases = site.service.services.ledger.leases
        await wait_for_async(lambda: leases[again["id"]].reason == "no_capacity", 30, "why")
        may_end.set()
        assert (await site.lease(again["id"], "starting")).devices == given_back


async def test_what_is_foretold_is_worked_out_in_the_planners_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands who wait that takes tenths of a second, in which the loop would not answer."""
    workers: set[str] = set()
    whole = forecast.turns

    def turns(snapshot: Any) -> Any:
        workers.add(threading.current_thread().name)
        return whole(snapshot)

    monkeypatch.setattr(forecast, "turns", turns)
    client = site.client(site.hub.server_token("stu"))
    asked = await client.ask({})
    await site.lease(asked["id"], "starting")
    await client.end(asked["id"])
    assert await client.classes()
    assert workers
    assert all(name.startswith(deciding.PLANNER) for name in workers)


async def test_what_changes_while_it_is_worked_out_is_told_as_it_is_then(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = site.service.services
    whole, looking, go_on = deciding.outlook, threading.Event(), threading.Event()
    tell, told = services.loop.publish, []

    def outlook(snapshot: Any) -> Any:
        if snapshot.leases:
            looking.set()
            go_on.wait(30)
        return whole(snapshot)

    async def publish(snapshot: Any) -> None:
        told.append(snapshot.leases is services.ledger.all())
        await tell(snapshot)

    monkeypatch.setattr(deciding, "outlook", outlook)
    monkeypatch.setattr(services.loop, "publish", publish)
    client = site.client(site.hub.server_token("stu"))
    asked = await client.ask({})
    await wait_for_async(looking.is_set, 30, "a round that looks ahead")
    await client.end(asked["id"])
    told.clear()
    go_on.set()
    await wait_for_async(lambda: told, 30, "the end of that round")
    assert all(told)


async def test_what_a_plan_says_of_a_lease_that_changed_meanwhile_is_dropped(
    site: Site, monkeypatch
) -> None:
    """A plan is made beside the loop: requests are answered meanwhile, and their word counts."""
    services = site.service.services
    planning, go_on = threading.Event(), threading.Event()

    def slow(whole: Any) -> Any:
        def planner(snapshot: Any) -> Any:
            if snapshot.leases:
                planning.set()
                assert go_on.wait(30)
            return whole(snapshot)

        return planner

    monkeypatch.setattr(deciding, "plan", slow(deciding.plan))
    monkeypatch.setattr(deciding, "admissions", slow(deciding.admissions))
    eve = site.client(site.hub.server_token("eve"))
    try:
        asked = await eve.ask({})
        await wait_for_async(planning.is_set, 30, "a plan is being made")
        await eve.end(asked["id"])
    finally:
        go_on.set()
    await site.lease(asked["id"], "ended")
    rounds = services.loop.rounds
    await wait_for_async(lambda: services.loop.rounds > rounds, 30, "the round's end")
    found = services.ledger.store.read(history.transitions, asked["id"])
    assert [row.why for row in found] == ["asked", "returned"]
    assert services.metrics.registry.get_sample_value(
        "gpulease_errors_total", {"reason": "stale_plan"}
    )


async def test_what_a_start_meets_is_told_while_its_stage_stays(site: Site, monkeypatch) -> None:
    """To its holder in a sentence, to admins in the provider's words, to the history not again."""
    services = site.service.services
    whole, words = services.provider.observe, {"detail": "Pulling image", "said": ""}

    async def observe() -> Any:
        return [replace(each, connected=False, stage="pulling", **words) for each in await whole()]

    monkeypatch.setattr(services.provider, "observe", observe)
    token = site.hub.server_token("stu")
    asked = await site.client(token).ask({})
    server, admin = [await Server.join(site, each) for each in (token, site.hub.admin_token())]

    def told(peer: Server = server) -> Any:
        return peer.view(asked["id"])

    await wait_for_async(lambda: told()["reason"] == "pulling", 30, "the stage")
    rows = services.ledger.store.read(history.transitions, asked["id"])
    before = told()
    for said, detail in (("pulled_again", "ErrImagePull: lost"), ("", "Pulling image again")):
        words |= {"said": said, "detail": detail}
        await wait_for_async(
            lambda said=said: told()["sentence"].endswith(
                reasons.PROGRESS[said] or before["sentence"]
            ),
            30,
            "its sentence",
        )
        await wait_for_async(
            lambda detail=detail: told(admin).get("detail") == detail, 30, "the words"
        )
        found = await site.client(site.hub.admin_token()).lease(asked["id"])
        assert found["detail"] == detail
    assert told()["version"] == before["version"]
    assert "detail" not in told()
    assert services.ledger.store.read(history.transitions, asked["id"]) == rows
    for each in (server, admin):
        await each.close()


def reconcile_report(**members: Any) -> Any:
    from gpulease.providers.base import SupervisorReport

    return SupervisorReport(**members)


class Told:
    """A connected supervisor's end: what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, message: Any) -> None:
        self.told.append(message["type"])

    def hang_up(self) -> None:
        raise AssertionError("nobody took over")


def lease(state: LeaseState, **more: Any) -> Lease:
    made = Lease("L", "stu", "", "any", 1, (NOW, 1), NOW, state=state, attempt=1, devices=("G",))
    return replace(made, **more)


QUEUED, STARTING, ACTIVE, WARNED, DRAINING, ENDED = LeaseState
SOON = NOW + timedelta(seconds=9)


@pytest.mark.parametrize(
    ("before", "after", "done"),
    [
        (lease(STARTING), lease(ACTIVE), []),
        (lease(STARTING), lease(ACTIVE, hard_end=SOON), ["lease"]),
        (lease(STARTING), lease(ENDED), []),
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
        (lease(DRAINING, drain_until=SOON), lease(ENDED, end_reason=EndReason.IDLE), []),
        (lease(ACTIVE), lease(ACTIVE, claimed=NOW), []),
        (lease(ACTIVE), lease(WARNED, warned_until=SOON, attempt=2), []),
    ],
)
def test_a_supervisor_is_told_what_it_does_not_know_yet(
    before: Lease, after: Lease, done: list[str]
) -> None:
    links, wire = SupervisorConnections(lambda: None), Told()
    links.connected(before, wire, {"type": "hello", "address": "a", "public_key": "k"})
    wire.told.clear()
    links.agree(after)
    links.agree(after)
    assert wire.told == done


async def test_a_service_ends_however_its_loop_is_woken_meanwhile(hub, run) -> None:
    """A cancellation that meets a wake-up must not be swallowed: the service would never end."""
    for _ in range(5):
        async with run(tick=60.0, hub_seconds=60.0) as site:
            services = site.service.services
            await wait_for_async(lambda services=services: services.loop.rounds, 30, "a round")
            services.loop.wake()
            services.servers.joined("stu", "")


async def test_an_admin_puts_the_gpu_of_a_lease_back_into_service_once(run: Any) -> None:
    async with run(gpus=1) as site:
        lease, channel, supervisor = await active_lease(site)
        admin = site.client(site.hub.admin_token())
        path = f"leases/{lease['id']}/put-back"
        with pytest.raises(GPULeaseError) as caught:
            await admin.call("POST", path, {})  # nothing is left behind: it goes on
        assert (caught.value.reason, caught.value.status) == ("holds_nothing", 409)
        with pytest.raises(GPULeaseError) as caught:
            await site.client(site.hub.page_token("stu")).call("POST", path, {})
        assert caught.value.reason == "admins_only"
        await site.lease(lease["id"], "active")
        await supervisor.close()
        await channel.close()
