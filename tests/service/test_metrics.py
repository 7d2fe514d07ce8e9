"""What Prometheus reads after a lease has lived: lengths, waits, drains, reclaimed time, errors."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tornado.httpclient import AsyncHTTPClient

from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async
from tests.service.kit import Site, Supervisor, active_lease

CLASS = {"gpu_class": "simulated-gpu"}


async def read(site: Site, name: str, **labels: str) -> float:
    """Return one sample's value; 0 where there is none yet."""
    text = (await AsyncHTTPClient().fetch(f"{site.url}metrics")).body.decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return 0.0


async def idle(supervisor: Supervisor) -> None:
    while True:
        await supervisor.live()
        await asyncio.sleep(0.05)


async def test_a_life_from_the_ask_to_idle_reclaim(run) -> None:
    async with run(gpus=1, outs={"idle": 0.3, "warning": 0.3}) as site:
        lease, channel, supervisor = await active_lease(site)
        assert await read(site, "gpulease_leases", state="active", **CLASS) == 1
        assert await read(site, "gpulease_devices", use="used") == 1
        assert await read(site, "gpulease_waiting_seconds_count", **CLASS) == 1
        assert await read(site, "gpulease_attach_seconds_count", **CLASS) == 1
        assert await read(site, "gpulease_drain_seconds_count", **CLASS) == 0

        other = await site.client(site.hub.server_token("eve")).ask({})

        async def queued() -> bool:
            return await read(site, "gpulease_queue_length", **CLASS) == 1

        await wait_for_async(queued, 30, "the queue's length")

        idling = asyncio.ensure_future(idle(supervisor))
        await supervisor.next("drain")
        assert await read(site, "gpulease_parked_total", **CLASS) == 0
        await supervisor.say({"type": "drained", "result": "parked", "parked": 2})
        await site.lease(lease["id"], "ended")
        idling.cancel()
        await site.lease(other["id"], "starting")
        assert await read(site, "gpulease_drain_seconds_count", **CLASS) == 1
        assert await read(site, "gpulease_ended_total", reason="idle", **CLASS) == 1
        assert await read(site, "gpulease_parked_total", **CLASS) == 1
        # Almost all of its eight hours.
        assert await read(site, "gpulease_reclaimed_idle_gpu_seconds_total", **CLASS) > 28000
        assert await read(site, "gpulease_waiting_seconds_count", **CLASS) == 2
        await channel.close()


async def test_refusals_are_counted_by_reason(site: Site) -> None:
    client = site.client(site.hub.server_token("stu"))
    for _ in range(2):
        with pytest.raises(GPULeaseError):
            await client.ask({"gpu_class": "none-such"})
    assert await read(site, "gpulease_errors_total", reason="unknown_class") == 2
