"""How much one person may take, and what is taken in before it is known from whom."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClosedError

from gpulease.errors import GPULeaseError
from gpulease.service import rate_limit
from gpulease.service.rate_limit import PAGES_MAX, PEERS_MAX, LoopTime, Rate, RateLimit
from tests.helpers import wait_for_async
from tests.service.kit import PREFIX, Hub, Peer, Server, Site, Supervisor, kernel
from tests.service.test_bad_input import problem, send

POLICY = """
pools: {{simulated-gpu: {{}}}}
classes: {{card: {{pool: simulated-gpu}}}}
limits: {limits}
"""


@pytest.fixture
def limited(run: Any, tmp_path: Any) -> Any:
    """Run a service with one GPU, whose policy has these limits."""

    def start(limits: str) -> Any:
        file = tmp_path / "policy.yaml"
        file.write_text(POLICY.format(limits=limits))
        return run(first_policy_file=file, gpus=1)

    return start


async def refused(work: Any) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as found:
        await work
    return found.value


async def test_one_person_cannot_fill_the_queue(limited: Any, hub: Hub) -> None:
    names = [f"lab-{number}" for number in range(5)]
    hub.user("stu", "", *names)
    hub.user("ann", "")
    async with limited("{waiting_per_user: 2, queue_max: 3}") as site:
        await site.lease((await site.client(hub.page_token("ann")).ask({}))["id"], "starting")
        client = site.client(hub.page_token("stu"))
        for name in names[:2]:
            await client.ask({"server": name})
        error = await refused(client.ask({"server": names[2]}))
        assert (error.reason, error.status, error.numbers["max"]) == ("too_many_waiting", 429, 2)
        await client.ask({"server": names[0]})  # the same ask is no new one
        last = await site.client(hub.page_token("eve")).ask({"server": ""})
        assert await site.place(last["id"]) == 3


@pytest.mark.parametrize("asker", ["page", "admin"])
async def test_nobody_queues_for_a_server_that_does_not_exist(
    site: Site, hub: Hub, asker: str
) -> None:
    client = site.client(hub.page_token("stu") if asker == "page" else hub.admin_token())
    error = await refused(client.ask({"user": "stu", "server": "invented"}))
    assert (error.reason, error.status) == ("no_such_server", 404)
    assert site.service.services.ledger.leases == {}


async def test_nobody_queues_for_a_person_who_does_not_exist(site: Site, hub: Hub) -> None:
    error = await refused(site.client(hub.admin_token()).ask({"user": "nobody", "server": ""}))
    assert (error.reason, error.status) == ("no_such_server", 404)


async def test_a_server_that_is_stopped_may_be_queued_for_before_it_starts(
    site: Site, hub: Hub
) -> None:
    hub.users["stu"]["servers"]["second"] = {"name": "second", "ready": False, "stopped": True}
    lease = await site.client(hub.page_token("stu")).ask({"server": "second"})
    stored = site.service.services.ledger.leases[lease["id"]]
    assert (stored.server, stored.server_ready) == ("second", False)


async def test_changes_are_counted_for_each_person_and_reading_for_itself(
    limited: Any, hub: Hub
) -> None:
    async with limited("{changes_per_minute: 3}") as site:
        bounds, stopped = site.service.services.bounds, RateLimit(lambda: 3, clock=lambda: 0.0)
        bounds.changes, bounds.looks = stopped.changes, stopped.looks
        token = hub.page_token("stu")
        for _ in range(3):
            assert (await send(site, token, "POST", "leases", '{"server": ""}')).code < 300
        # Another token of the same person is the same person.
        response = await send(site, hub.page_token("stu"), "POST", "leases", '{"server": ""}')
        found = problem(response)
        assert (response.code, found["reason"]) == (429, "too_many_changes")
        assert found["detail"].startswith("That is more than 3 changes in a minute. Try again")
        assert 1 <= int(response.headers["Retry-After"]) <= 20
        assert found["numbers"]["retry_after"] == int(response.headers["Retry-After"])
        # What a run's server says by itself, after each cell, is none of the person's changes.
        told = problem(await send(site, token, "POST", "runs/r1/reports", "{}"))
        assert told["reason"] == "invalid_body"
        looked = [await send(site, token, "GET", "classes", None) for _ in range(30)]
        assert [each.code for each in looked] == [200] * 29 + [429], "ten looks for each change"
        assert problem(looked[-1])["reason"] == "too_many_requests"
        assert int(looked[-1].headers["Retry-After"]) == 2
        admin = hub.admin_token()
        assert {(await send(site, admin, "GET", "me", None)).code for _ in range(40)} == {200}
        eve = hub.page_token("eve")
        assert (await send(site, eve, "POST", "leases", '{"server": ""}')).code == 201


def test_changes_come_back_with_time_and_never_above_a_minutes() -> None:
    now = [0.0]
    told: list[int] = []
    rate = Rate(lambda: 6, clock=lambda: now[0])

    def possible() -> int:
        for count in itertools.count():
            try:
                rate.take("stu")
            except GPULeaseError as error:
                told.append(error.numbers["retry_after"])
                return count
        return -1

    assert possible() == 6
    now[0] = 10
    assert possible() == 1
    now[0] = 25
    assert possible() == 1
    now[0] = 1000
    assert possible() == 6
    assert told == [10, 10, 5, 10]


async def test_so_many_pages_of_a_person_may_be_open_and_no_more(site: Site, hub: Hub) -> None:
    token = hub.page_token("stu")
    pages = [await Server.join(site, token) for _ in range(PAGES_MAX)]
    with pytest.raises(HTTPClientError) as found:
        await Server.join(site, token)
    assert found.value.code == 429
    assert found.value.response is not None
    assert int(found.value.response.headers["Retry-After"]) > 0
    others = [await Server.join(site, hub.page_token("eve"))]
    others.append(await Server.join(site, hub.server_token("stu")))
    await pages.pop().close()
    pages.append(await Server.join(site, token))
    for each in (*pages, *others):
        await each.close()


async def test_so_many_channels_of_a_server_and_of_a_supervisor_may_be_open(
    site: Site, hub: Hub
) -> None:
    token = hub.server_token("stu")
    channels = [await Server.join(site, token) for _ in range(PEERS_MAX)]
    with pytest.raises(HTTPClientError) as found:
        await Server.join(site, token)
    assert found.value.code == 429
    lease = await site.client(token).ask({})
    grant = await channels[0].grant(lease["id"])
    silent = [await _silent(site, lease["id"], grant) for _ in range(PEERS_MAX)]
    with pytest.raises(HTTPClientError) as found:
        await _silent(site, lease["id"], grant)
    assert found.value.code == 429
    for each in (*channels, *silent):
        await each.close()


async def _silent(site: Site, lease_id: str, grant: dict[str, Any]) -> Peer:
    """Open a supervisor's channel and never say hello."""
    url = f"{site.url}api/leases/{lease_id}/supervisor"
    found = await Supervisor.open(url, Authorization=f"Bearer {grant['token']}")
    assert isinstance(found, Peer)
    return found


def test_who_has_the_event_loop_work_too_much_is_not_read_for_a_while() -> None:
    now = [0.0]
    time = LoopTime(clock=lambda: now[0])
    assert time.spent(("stu", ""), 0.19) == 0.0, "some at once is what a start takes"
    assert time.spent(("stu", ""), 0.03) == pytest.approx(1.0), "then a fiftieth of the time"
    assert time.spent(("eve", ""), 0.19) == 0.0
    now[0] = 1.0
    assert time.spent(("stu", ""), 0.02) == pytest.approx(1.0)
    assert time.spent(("stu", ""), 9.0) == 10.0, "pings are answered meanwhile"
    now[0] = 500.0
    for second in range(1000):  # what an honest supervisor sends
        now[0] += 1
        assert time.spent(("ann", ""), 0.005) == 0.0, second


async def test_a_flood_on_one_channel_leaves_the_service_to_others(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    services, taken = site.service.services, []
    monkeypatch.setattr(services.servers, "kernels", lambda *_: taken.append(True))
    server = await Server.join(site, hub.server_token("stu"))
    report = kernel("k" * 100, notebook="n" * 900, leases=["l" * 60] * 60)
    flood = json.dumps({"type": "kernels", "kernels": [report] * 300})

    async def send_much() -> None:
        with suppress(WebSocketClosedError):
            for _ in range(200):
                await server.say(flood)

    sending = asyncio.create_task(send_much())
    resting = lambda: services.bounds.loop_time.spent(("stu", ""), 0.0)  # noqa: E731
    await wait_for_async(resting, 60, "that nothing more of it is read")
    for _ in range(20):
        assert (await send(site, hub.server_token("eve"), "GET", "classes", None)).code == 200
    assert 0 < len(taken) < 100
    for task in asyncio.all_tasks():  # as at the end of the service
        if getattr(task.get_coro(), "__name__", "") == "sleep":
            task.cancel()
    await sending
    await server.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_nonsense_on_a_channel_is_logged_once(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[bool] = []
    monkeypatch.setattr(site.service.services.servers, "kernels", lambda *_: taken.append(True))
    server = await Server.join(site, hub.server_token("stu"))
    for _ in range(20):
        await server.say(json.dumps({"type": "nope"}))
    await server.say(json.dumps({"type": "kernels", "kernels": []}))
    await wait_for_async(lambda: taken, 30, "the report after them")
    await server.close()
    assert sum("not one" in record.message for record in caplog.records) == 1


def test_who_is_full_again_is_forgotten_and_many_cost_no_request_a_look_at_each() -> None:
    now = [0.0]
    buckets = rate_limit._Buckets(lambda: now[0], rate_limit._MINUTE)
    for number in range(5000):
        buckets.of(number, 6)
    kept = buckets._known
    for number in range(5000):
        buckets.of(number, 6)
    assert buckets._known is kept, "nobody is looked for among them again"
    now[0] = 61
    for number in range(20000, 26000):
        buckets.of(number, 6)
    assert len(buckets._known) < 10_000


@pytest.mark.parametrize(("most", "said"), [(1, "1 change in"), (2, "2 changes in")])
def test_more_than_one_change_is_said_in_words(most: int, said: str) -> None:
    rate = Rate(lambda: most, clock=lambda: 0.0)
    for _ in range(most):
        rate.take("stu")
    with pytest.raises(GPULeaseError, match=said):
        rate.take("stu")


def test_changes_of_a_day_are_bounded_too_and_nobody_is_forgotten_before() -> None:
    """What is changed is kept for months: at a minute's rate one person would fill the disk."""
    now = [0.0]
    made = rate_limit.RateLimit(lambda: 2, clock=lambda: now[0])
    for _ in range(120):
        made.changes_of_a_day.take("stu")
    with pytest.raises(GPULeaseError, match="120 changes in a day") as caught:
        made.changes_of_a_day.take("stu")
    assert caught.value.numbers["retry_after"] == 720
    for number in range(2 * rate_limit._REMEMBERED):
        made.changes_of_a_day.take(f"{number}")
    now[0] = 720
    made.changes_of_a_day.take("stu")
    with pytest.raises(GPULeaseError):
        made.changes_of_a_day.take("stu")


async def test_every_change_counts_for_the_day_and_a_look_does_not(site: Site, hub: Hub) -> None:
    taken: list[str] = []
    site.service.services.bounds.changes_of_a_day.take = taken.append  # type: ignore[method-assign]
    token = hub.page_token("eve")
    await send(site, token, "GET", "me", None)
    assert taken == []
    await send(site, token, "POST", "leases", "{}")
    assert taken == ["eve"]


async def test_one_run_keeps_few_parameters(site: Site, hub: Hub) -> None:
    body = {"notebook": "a.ipynb", "parameters": {f"p{n}": "x" * 9000 for n in range(2)}}
    answer = await send(site, hub.page_token("stu"), "POST", "runs", json.dumps(body))
    said = json.loads(answer.body)["detail"]
    assert said == "parameters: together they must have at most 16000 characters."


MIB = 2**20


@asynccontextmanager
async def connected(site: Site) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.service.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def head(path: str, token: str, *more: str, method: str = "POST") -> bytes:
    lines = (
        f"{method} {PREFIX}{path} HTTP/1.1",
        "Host: x",
        f"Authorization: token {token}",
        "Content-Type: application/json",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(headers.split("content-length: ")[1].split("\r\n")[0])
    return int(headers.split()[1]), json.loads(await reader.readexactly(length))


async def test_who_asks_is_known_before_anything_of_the_body_comes(site: Site, hub: Hub) -> None:
    async with connected(site) as (_, writer):
        writer.write(head("api/policy", "nobodys", f"Content-Length: {MIB // 2}", method="PUT"))
        await wait_for_async(lambda: "/hub/api/user" in hub.asked, 30, "the hub to be asked")


async def test_nothing_is_kept_of_a_strangers_body(site: Site, hub: Hub, monkeypatch) -> None:
    from gpulease.service.rest.site import Policy

    kept: list[int] = []
    take = Policy.data_received

    def noted(handler: Any, chunk: bytes) -> None:
        take(handler, chunk)
        kept.append(len(handler._body))

    monkeypatch.setattr(Policy, "data_received", noted)
    async with connected(site) as (reader, writer):
        writer.write(head("api/policy", "nobodys", "Content-Length: 500000", method="PUT"))
        writer.write(b"x" * 500_000)
        status, problem = await answer(reader)
    assert (status, problem["reason"]) == (401, "not_logged_in")
    assert set(kept) == {0}


async def test_a_body_that_is_too_long_is_refused_unread(site: Site, hub: Hub) -> None:
    async with connected(site) as (reader, writer):
        writer.write(head("api/leases", hub.page_token("stu"), f"Content-Length: {8 * MIB}"))
        status, problem = await answer(reader)
        assert (status, problem["reason"]) == (413, "body_too_large")
        assert problem["numbers"] == {"bytes": 8 * MIB, "max": 65536}
        assert await reader.read() == b""  # and it is hung up


async def test_a_body_of_unknown_length_is_refused_when_it_is_too_long(
    site: Site, hub: Hub
) -> None:
    async with connected(site) as (reader, writer):
        writer.write(head("api/leases", hub.page_token("stu"), "Transfer-Encoding: chunked"))
        piece = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        writer.write(piece * 3 + b"0\r\n\r\n")
        status, problem = await answer(reader)
        assert (status, problem["reason"]) == (413, "body_too_large")


async def test_who_asks_whether_to_go_on_is_refused_at_once(site: Site, hub: Hub) -> None:
    async with connected(site) as (reader, writer):
        writer.write(head("api/leases", "nobodys", "Content-Length: 100", "Expect: 100-continue"))
        assert (await answer(reader))[0] == 401


async def test_each_address_has_its_own_bound(site: Site, hub: Hub) -> None:
    text = "# " + "x" * 100_000
    body = json.dumps({"text": text}).encode()
    async with connected(site) as (reader, writer):
        length = f"Content-Length: {len(body)}"
        writer.write(head("api/policy/check", hub.admin_token(), length) + body)
        assert (await answer(reader))[0] == 200


async def test_half_a_request_is_not_waited_for(run: Any, hub: Hub) -> None:
    token = hub.page_token("stu")
    async with run(request_seconds=0.3) as site:
        for begun in (
            b"",
            b"POST / HT",
            head("api/leases", token, "Content-Length: 100")[:-2],
            head("api/leases", token, "Content-Length: 100") + b"{",
        ):
            async with connected(site) as (reader, writer), asyncio.timeout(30):
                writer.write(begun)
                assert await reader.read() == b""


async def test_silent_connections_make_room_for_those_who_ask(run: Any, hub: Hub) -> None:
    async with run(connections_max=10) as site:
        silent = [await asyncio.open_connection("127.0.0.1", site.service.port) for _ in range(30)]
        assert (await site.client("").call("GET", "health"))["status"] == "ok"
        async with asyncio.timeout(30):
            for reader, _ in silent[:20]:
                assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in silent[21:])
        for _, writer in silent:
            writer.close()


async def test_who_waits_for_an_answer_keeps_the_place_that_later_ones_want(
    run: Any, hub: Hub, monkeypatch: Any
) -> None:
    """Thousands come back to a service at once, and the hub says slowly who each of them is."""
    from gpulease.service.hubs.auth import ServiceOAuth

    answers, asked, token = asyncio.Event(), [], hub.page_token("stu")
    ask = ServiceOAuth._api_request

    async def slow(log_in: Any, *args: Any, **options: Any) -> Any:
        asked.append(args)
        await answers.wait()
        return await ask(log_in, *args, **options)

    monkeypatch.setattr(ServiceOAuth, "_api_request", slow)
    async with run(connections_max=10) as site, contextlib.AsyncExitStack() as all_of_them:
        first = [await all_of_them.enter_async_context(connected(site)) for _ in range(10)]
        for _, writer in first:
            writer.write(head("api/me", token, method="GET"))
        await wait_for_async(lambda: len(asked) == 10, 30, "ten to be asked about")
        for _ in range(30):
            reader, writer = await all_of_them.enter_async_context(connected(site))
            writer.write(head("api/me", token, method="GET"))
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b"", "there is no room for it now"
        answers.set()
        assert [(await answer(reader))[0] for reader, _ in first] == [200] * 10
        # Who was answered is silent again, and makes room.
        reader, writer = await all_of_them.enter_async_context(connected(site))
        writer.write(head("api/me", token, method="GET"))
        assert (await answer(reader))[0] == 200
