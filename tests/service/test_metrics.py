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
    token = {"Authorization": f"token {site.hub.metrics_token()}"}
    text = (await AsyncHTTPClient().fetch(f"{site.url}metrics", headers=token)).body.decode()
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
    async with run(gpus=1, outs={"idle": 5, "claim": 5, "warning": 0.3}) as site:
        lease, channel, supervisor = await active_lease(site)

        async def active() -> bool:
            return await read(site, "gpulease_leases", state="active", **CLASS) == 1

        # A figure is of the last round: it may have been a moment before.
        await wait_for_async(active, 30, "the lease among the figures")
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


async def status(url: str, token: str = "") -> int:
    headers = {"Authorization": f"token {token}"} if token else {}
    return (await AsyncHTTPClient().fetch(url, headers=headers, raise_error=False)).code


async def test_figures_are_for_those_who_may_read_them(run, hub) -> None:
    async with run() as site:
        url = f"{site.url}metrics"
        assert await status(url) == 401
        assert await status(url, hub.page_token("stu")) == 403
        assert await status(url, hub.admin_token()) == 403
        assert await status(url, hub.metrics_token()) == 200
        # Not by another way to the same port: lease pods and the proxy reach that.
        assert await status(f"http://127.0.0.1:{site.service.port}/metrics") == 404


async def test_prometheus_has_an_address_of_its_own_which_has_nothing_else(run) -> None:
    async with run(metrics_at=("127.0.0.1", 0)) as site:
        here = f"http://127.0.0.1:{site.service.metrics_port}"
        assert "gpulease_leases" in (await AsyncHTTPClient().fetch(f"{here}/metrics")).body.decode()
        assert await status(f"{here}/services/gpulease/api/health") == 404
