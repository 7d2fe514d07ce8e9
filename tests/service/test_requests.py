"""What is asked for in one moment: one transaction, and yet each is answered for itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from gpulease.policy.admission_check import Ask
from gpulease.policy.model import Lease
from gpulease.protocol.asks import AskBody
from gpulease.service.hubs.auth import asker_of
from gpulease.service.leases import requests as module
from gpulease.service.leases.requests import Asked
from gpulease.store import Change
from tests.helpers import wait_for_async
from tests.service.kit import Hub, Site, active_lease


async def test_an_ask_may_demand_more_of_a_gpu_than_its_class(site: Site) -> None:
    token = site.hub.server_token("stu")
    with pytest.raises(GPULeaseError, match="No machine has 1 GPU "):
        await site.client(token).call("POST", "leases", {"needs": "memory >= 900GiB"})
    lease, channel, supervisor = await active_lease(site, needs="memory>=1GiB")
    assert lease["needs"] == "memory>=1GiB"
    assert (await site.client(token).call("GET", f"leases/{lease['id']}"))["needs"] == (
        "memory>=1GiB"
    )
    await supervisor.close()
    await channel.close()


class Class:
    """Students who ask in the same moment: nobody is served before everybody is in the line."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.records: list[int] = []
        self.ends: list[int] = []
        self.asks: list[asyncio.Task[Any]] = []
        self._later: list[Coroutine[Any, Any, Lease]] | None = None
        ledger = site.service.services.ledger
        record = ledger.record

        async def counted(changes: Sequence[Any], now: Any, plan: Any = None) -> None:
            self.records.append(sum(change.why == "asked" for change in changes))
            self.ends.append(sum(change.why == "returned" for change in changes))
            await record(changes, now, plan)

        ledger.record = counted  # type: ignore[method-assign]

    def ask(self, user: str, server: str = "", key: str = "", **body: Any) -> None:
        """Ask as a server of this user."""
        if user not in self.site.hub.users:
            self.site.hub.user(user, "", "two")
        hub, requests = self.site.hub, self.site.service.services.requests
        asker = asker_of(hub.tokens[hub.server_token(user, server)])
        self._begin(self._answer(requests.ask(asker, AskBody(**body), key)))

    def end(self, user: str, lease_id: str) -> None:
        """Give a lease back as its user's server."""
        hub, commands = self.site.hub, self.site.service.services.commands
        asker = asker_of(hub.tokens[hub.server_token(user)])
        self._begin(commands.end(asker, lease_id, ""))

    def _begin(self, answer: Coroutine[Any, Any, Lease]) -> None:
        if self._later is None:
            self.asks.append(asyncio.create_task(answer))
        else:
            self._later.append(answer)

    async def _answer(self, asking: Awaitable[tuple[Lease, bool]]) -> Lease:
        lease, _ = await asking
        return lease

    @asynccontextmanager
    async def in_one_moment(self) -> AsyncIterator[None]:
        """Let everybody who asks in this block stand in the line at its end."""
        line = self.site.service.services.commands.batcher._line
        async with self.site.service.services.ledger.lock:
            self._later = later = []
            yield
            self._later = None
            for number, answer in enumerate(later, 1):  # one by one: the hub answers in any order
                self.asks.append(asyncio.create_task(answer))
                await wait_for_async(lambda n=number: len(line) == n, 60, "the next in the line")

    async def answers(self) -> list[Any]:
        return await asyncio.gather(*self.asks, return_exceptions=True)

    @property
    def writes(self) -> list[int]:
        """How many new leases each transaction with some of them wrote."""
        return [number for number in self.records if number]


@pytest.fixture
async def students(site: Site) -> Class:
    return Class(site)


@pytest.fixture
async def waiting_students(run: Any) -> AsyncIterator[Class]:
    """Students whose asks stay in the queue: somebody has the only GPU."""
    async with run(gpus=1) as site:
        _, channel, supervisor = await active_lease(site)
        yield Class(site)
        await supervisor.close()
        await channel.close()


async def test_a_class_that_asks_at_once_is_written_at_once(students: Class) -> None:
    async with students.in_one_moment():
        for number in range(30):
            students.ask(f"s{number}")
    leases = await students.answers()
    assert {lease.user for lease in leases} == {f"s{number}" for number in range(30)}
    assert len({lease.ticket for lease in leases}) == 30, "each has a place of its own"
    assert students.writes == [30]
    stored = students.site.service.services.ledger.store.live()
    assert {lease.id for lease in stored} == {lease.id for lease in leases}


async def test_more_than_one_turn_takes_are_served_in_turns(
    students: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 4)
    async with students.in_one_moment():
        for number in range(10):
            students.ask(f"s{number}")
    assert len({lease.id for lease in await students.answers()}) == 10
    assert students.writes == [4, 4, 2]


async def test_the_same_ask_twice_in_one_moment_is_one_lease(students: Class) -> None:
    async with students.in_one_moment():
        students.ask("ada", key="same")
        students.ask("ada", key="same")
        students.ask("ada")
    first, second, third = await students.answers()
    assert first.id == second.id == third.id
    assert students.writes == [1]


async def test_a_class_that_ends_at_once_is_written_at_once(waiting_students: Class) -> None:
    students = waiting_students
    async with students.in_one_moment():
        for number in range(30):
            students.ask(f"s{number}")
    leases = await students.answers()
    students.asks.clear()
    async with students.in_one_moment():
        for lease in leases:
            students.end(lease.user, lease.id)
        students.end("s1", leases[0].id)  # not theirs
        students.end("s0", leases[0].id)  # a second time
        students.ask("s0")
    *ended, foreign, again, asked = await students.answers()
    assert {lease.state for lease in ended} == {"ended"}
    assert foreign.reason == "no_such_lease"
    assert again == ended[0], "what is ended is not ended again"
    assert (asked.user, asked.state) == ("s0", "queued")
    assert asked.id != leases[0].id
    assert [number for number in students.ends if number] == [30]


async def test_a_change_that_the_store_refuses_is_the_only_one(waiting_students: Class) -> None:
    students = waiting_students
    for user in ("ada", "bob", "cyd"):
        students.ask(user)
    ada, bob, cyd = await students.answers()
    students.asks.clear()
    ledger = students.site.service.services.ledger
    theirs = [ada.id, bob.id, cyd.id]
    await wait_for_async(
        lambda: all(ledger.leases[each].reason == "no_capacity" for each in theirs), 30, "a plan"
    )
    ledger.leases[bob.id] = replace(ledger.leases[bob.id], version=7)  # nobody stored this one
    async with students.in_one_moment():
        for lease in (ada, bob, cyd):
            students.end(lease.user, lease.id)
        students.ask("bob")
    *ended, asked = await students.answers()
    assert [getattr(each, "reason", "") for each in ended] == [
        "withdrawn",
        "version_conflict",
        "withdrawn",
    ]
    assert asked.id == bob.id, "whose end was refused has the lease still"


async def test_what_breaks_in_one_turn_breaks_nobody_elses(students: Class) -> None:
    turns = students.site.service.services.commands.batcher

    def broken() -> Change:
        raise RuntimeError("a mistake of ours")

    async with students.in_one_moment():
        students.ask("ada")
        students._begin(turns.change(broken))
        students.ask("bob")
    ada, wrong, bob = await students.answers()
    assert str(wrong) == "a mistake of ours"
    assert [ada.user, bob.user] == ["ada", "bob"]


async def test_what_one_is_refused_is_refused_to_nobody_else(students: Class) -> None:
    async with students.in_one_moment():
        students.ask("ada", gpu_class="nonsense")
        students.ask("bob")
        students.ask("cyd", key="mine")
        students.ask("cyd", "two", key="mine", origin="page")
        students.ask("dan")
    ada, bob, cyd, again, dan = await students.answers()
    assert (ada.reason, again.reason) == ("unknown_class", "key_reused")
    assert [lease.user for lease in (bob, cyd, dan)] == ["bob", "cyd", "dan"]
    live = students.site.service.services.ledger.live()
    assert sorted((lease.user, lease.server) for lease in live) == [
        ("bob", ""), ("cyd", ""), ("dan", ""),
    ]  # fmt: skip


async def test_a_key_of_an_earlier_ask_is_answered_by_its_lease(students: Class) -> None:
    students.ask("ada", key="early")
    (early,) = await students.answers()
    await students.site.client(students.site.hub.server_token("ada")).end(early.id)
    async with students.in_one_moment():
        students.ask("ada", key="early")
        students.ask("ada", key="early", origin="page")
        students.ask("bob")
    _, again, other, bob = await students.answers()
    assert again.id == early.id
    assert other.reason == "key_reused"
    assert bob.user == "bob"


async def test_the_queues_bound_counts_those_of_the_same_moment(students: Class) -> None:
    services = students.site.service.services
    text = re.sub(r"queue_max: \d+", "queue_max: 2", services.policies.text.text)
    await services.policies.save(text, "root", None)
    assert services.policies.current.queue_max == 2
    async with students.in_one_moment():
        for number in range(4):
            students.ask(f"s{number}")
    found = await students.answers()
    assert [isinstance(each, GPULeaseError) for each in found].count(True) == 2
    assert {each.reason for each in found if isinstance(each, GPULeaseError)} == {"queue_full"}


async def test_a_lease_that_is_called_back_leaves_the_others_their_turn(
    students: Class, hub: Hub
) -> None:
    lease, channel, supervisor = await active_lease(students.site)
    await students.site.client(hub.server_token("stu")).end(lease["id"])
    await students.site.lease(lease["id"], "draining")
    async with students.in_one_moment():
        students.ask("stu")
        students.ask("ada")
    stu, ada = await students.answers()
    assert (stu.id, stu.state) == (lease["id"], "active")
    assert ada.user == "ada"
    await supervisor.close()
    await channel.close()


@pytest.mark.parametrize("served", [False, True], ids=["waiting", "serving"])
async def test_who_gives_up_leaves_the_others_their_turn(students: Class, served: bool) -> None:
    services = students.site.service.services
    turns, ledger = services.commands.batcher, services.ledger
    reached, look_up = asyncio.Event(), ledger.begun

    async def slow(*given: Any) -> Any:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return await look_up(*given)

    def asked(user: str) -> Asked:
        return Asked(Ask(user, "", server_ready=True), user)

    students.site.hub.user("bob", "")
    if served:
        ledger.begun = slow  # type: ignore[method-assign]
    async with ledger.lock:
        first = asyncio.create_task(turns.ask(asked("ada")))
        second = asyncio.create_task(turns.ask(asked("bob")))
        await wait_for_async(lambda: len(turns._line) == 2)
        if not served:
            first.cancel()
    if served:
        await reached.wait()
        first.cancel()
    lease, new = await second
    assert (lease.user, new) == ("bob", True)
    assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))
    assert [each.user for each in ledger.live()] == ["bob"]
    assert turns._line == []


async def test_a_store_that_is_away_refuses_everybody_and_keeps_nobody(
    students: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = students.site.service.services.ledger

    def away(*_: Any) -> None:
        raise GPULeaseError("store_unavailable", "The store is away.", status=503)

    with monkeypatch.context() as patch:
        patch.setattr(ledger.store, "save", away)
        async with students.in_one_moment():
            students.ask("ada")
            students.ask("bob")
        assert [each.reason for each in await students.answers()] == ["store_unavailable"] * 2
        assert ledger.leases == {}
    students.asks.clear()
    async with students.in_one_moment():
        students.ask("ada")
    (lease,) = await students.answers()
    assert lease.user == "ada"
