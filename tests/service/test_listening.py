"""What the service takes in before it knows from whom: headers, bodies, connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.helpers import wait_for_async
from tests.service.kit import PREFIX, Hub, Site

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
