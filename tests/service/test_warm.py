"""The channel of a pod that stands ready, and what is told of its time."""

import json
from datetime import date
from types import SimpleNamespace

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.providers.local.provider import LocalProvider
from gpulease.service.leases.usage import WarmTime
from gpulease.service.metrics import Metrics
from tests.helpers import wait_for_async
from tests.service.kit import Site
from tests.service.test_usage import KeptNotes


class Pods:
    """What a provider with pods that stand ready answers."""

    def __init__(self):
        self.lines, self.away, self.kept = {}, False, 0
        self.held = {"card": 90.0}

    async def proves(self, token):
        if self.away:
            raise ConnectionRefusedError("the API server is away")
        return {"of-one": "uid-1"}.get(token, "")

    def ready(self, pod, tell):
        self.lines[pod] = tell

    def lost(self, pod, tell):
        if self.lines.get(pod) == tell:
            del self.lines[pod]

    def keep(self, standing, devices):
        self.kept += 1

    def places(self):
        return {"": ["simulated-gpu"] * len(self.lines)}

    def seconds(self):
        found, self.held = self.held, {}
        return found


@pytest.fixture
def pods(site: Site, monkeypatch: pytest.MonkeyPatch) -> Pods:
    found = Pods()
    monkeypatch.setattr(LocalProvider, "warm_pods", found)
    return found


async def opened(site: Site, token: str = "of-one") -> WebSocketClientConnection:
    url = f"{site.url.replace('http', 'ws', 1)}api/warm"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await websocket_connect(HTTPRequest(url, headers=headers))


async def said(channel: WebSocketClientConnection, **members: object) -> None:
    await channel.write_message(json.dumps(members))


async def test_a_pod_that_is_ready_is_told_whose_it_becomes(site: Site, pods: Pods) -> None:
    channel = await opened(site)
    await said(channel, type="ready", protocol=PROTOCOL_VERSION)
    await wait_for_async(lambda: "uid-1" in pods.lines, 30, "the pod to be known")
    pods.lines["uid-1"]({"GPULEASE_LEASE": "lease-1"})
    answer = await channel.read_message()
    assert json.loads(answer or "") == {
        "type": "claimed",
        "environment": {"GPULEASE_LEASE": "lease-1"},
    }
    channel.close()
    await wait_for_async(lambda: not pods.lines, 30, "the pod to be lost")


async def test_the_map_of_devices_shows_it(site: Site, pods: Pods) -> None:
    client = site.client(site.hub.admin_token())
    channel = await opened(site)
    await said(channel, type="ready", protocol=PROTOCOL_VERSION)
    await wait_for_async(lambda: pods.lines, 30, "the pod is ready")
    found = (await client.call("GET", "devices"))["items"]
    assert [each["use"] for each in found].count("ready") == 1
    channel.close()


async def test_nobody_else_opens_it(site: Site, pods: Pods) -> None:
    for token, status in [("", 401), ("of-another", 403)]:
        with pytest.raises(HTTPClientError) as refused:
            await opened(site, token)
        assert refused.value.code == status
        assert not pods.lines


async def test_it_says_so_when_the_cluster_does_not_answer(site: Site, pods: Pods) -> None:
    pods.away = True
    with pytest.raises(HTTPClientError) as refused:
        await opened(site)
    assert refused.value.code == 502


async def test_without_pods_that_stand_ready_nobody_opens_it(site: Site) -> None:
    with pytest.raises(HTTPClientError) as refused:
        await opened(site)
    assert refused.value.code == 403


async def test_who_speaks_another_protocol_ends(site: Site, pods: Pods) -> None:
    channel = await opened(site)
    await said(channel, type="ready", protocol="99.0")
    assert json.loads(await channel.read_message() or "") == {"type": "end"}
    assert not pods.lines
    channel.close()


async def test_what_is_no_word_of_a_pod_closes_the_channel(site: Site, pods: Pods) -> None:
    channel = await opened(site)
    await said(channel, type="hello")
    assert await channel.read_message() is None
    assert not pods.lines
    channel.close()


async def test_each_round_says_how_many_should_stand_ready(site: Site, pods: Pods) -> None:
    before = pods.kept
    site.service.services.loop.wake()
    await wait_for_async(lambda: pods.kept > before, 30, "the next round")


async def test_their_time_is_kept_by_day_and_class_and_outlives_the_service() -> None:
    ledger, pods, metrics = KeptNotes(), Pods(), Metrics()
    clock = SimpleNamespace(date=lambda: date(2026, 3, 2))
    first = WarmTime(ledger, pods, metrics, lambda: clock)  # type: ignore[arg-type]
    await first.load()
    await first.look()
    pods.held = {"card": 3510.0}
    await first.look()
    second = WarmTime(ledger, None, metrics, lambda: clock)  # type: ignore[arg-type]
    await second.load()
    await second.look()
    day = date(2026, 3, 2)
    assert second.hours(day, day) == {"card": 1.0}
    assert second.hours(date(2026, 3, 3), date(2026, 3, 4)) == {}
    value = metrics.registry.get_sample_value(
        "gpulease_warm_gpu_seconds_total", {"gpu_class": "card"}
    )
    assert value == 3600.0
