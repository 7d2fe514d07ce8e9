"""Old history goes while the service serves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.service.context import Retention
from gpulease.store import Ages, retention
from tests.helpers import wait_for_async
from tests.service.kit import Site, active_lease


async def test_an_old_lease_goes_and_a_living_one_stays(site: Site, caplog) -> None:
    services = site.service.services
    token = site.hub.server_token("eve")
    over = await site.client(token).ask({})
    await site.client(token).end(over["id"])
    await site.lease(over["id"], "ended")
    lease, server, supervisor = await active_lease(site)
    later = datetime.now(UTC) + timedelta(days=401)
    old = Retention(services.ledger, services.reservations, Ages(), clock=lambda: later)
    assert await old.once() > 0
    assert await services.ledger.call(services.ledger.store.lease, over["id"]) is None
    assert (await services.ledger.call(services.ledger.store.lease, lease["id"])) is not None
    await site.client(site.hub.server_token("stu")).end(lease["id"])
    await supervisor.next("drain")
    for peer in (supervisor, server):
        await peer.close()


async def test_a_store_that_is_away_is_waited_for(site: Site, monkeypatch, caplog) -> None:
    ledger, reserved = site.service.services.ledger, site.service.services.reservations
    asked = []

    def away(*_args):
        asked.append(True)
        if len(asked) == 1:
            raise GPULeaseError("store_unavailable", "It is away.", status=503)
        return 0

    monkeypatch.setattr(retention, "sweep", away)
    task = asyncio.create_task(Retention(ledger, reserved, Ages(), every=0.01).run())
    await wait_for_async(lambda: len(asked) > 1, 30, "another look")
    task.cancel()
    assert "old history stays: It is away." in caplog.text
