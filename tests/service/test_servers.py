"""Servers of busy leases are reported to the hub: all at once, and no other waits for one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gpulease.policy.document import default_document
from gpulease.policy.model import Device, Evidence, Lease, LeaseState, Verdict
from gpulease.service.hubs.api import HubUnreachableError
from gpulease.service.leases.servers import Servers
from tests.helpers import wait_for_async

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Hub:
    """The hub's answer to reports; it may hang or refuse for some."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.most = self.open = 0
        self.refuses: set[str] = set()
        self.go_on = asyncio.Event()

    async def refresh_activity(self, user: str, server: str, at: datetime) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        await self.go_on.wait()
        self.open -= 1
        if user in self.refuses:
            raise HubUnreachableError("the hub answered 500")
        self.told.append(user)


def site(number: int) -> tuple[Servers, Hub, Any]:
    leases = [
        Lease(f"L{n}", f"u{n}", "", "any", 1, (NOW, n), NOW, state=LeaseState.ACTIVE)
        for n in range(number)
    ]
    loop = SimpleNamespace(
        clock=lambda: loop.now,
        now=NOW,
        policies=SimpleNamespace(current=default_document([Device("G", "any")])),
        observed_state=SimpleNamespace(
            evidence={x.id: Evidence(Verdict.BUSY, NOW) for x in leases}
        ),
    )
    ledger: Any = SimpleNamespace(live=lambda: loop.leases)
    loop.leases = leases
    hub: Any = Hub()
    return Servers(ledger, loop, SimpleNamespace(), hub), hub, loop  # type: ignore[arg-type]


async def test_reports_go_out_together_and_one_that_fails_is_repeated() -> None:
    servers, hub, loop = site(20)
    hub.refuses = {"u3"}
    refreshing = asyncio.ensure_future(servers._refresh())
    await wait_for_async(lambda: hub.most == 20, 30, "all reports are under way")
    hub.go_on.set()
    with pytest.raises(HubUnreachableError):
        await refreshing
    assert len(hub.told) == 19
    hub.refuses.clear()
    loop.now = NOW + timedelta(seconds=10)
    await servers._refresh()
    assert hub.told[19:] == ["u3"]


async def test_what_was_told_long_ago_is_forgotten() -> None:
    servers, hub, loop = site(20)
    hub.go_on.set()
    for minute in range(5):
        loop.now = NOW + timedelta(minutes=minute)
        loop.leases = [replace(x, id=f"{x.id}-{minute}", user=f"{x.user}-{minute}")
                       for x in loop.leases]  # fmt: skip
        loop.observed_state.evidence = {x.id: Evidence(Verdict.BUSY, loop.now) for x in loop.leases}
        await servers._refresh()
    assert len(hub.told) == 100
    assert len(servers._told) == 20
