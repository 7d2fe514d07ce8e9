"""The demo's proxy between a real client and a real server: what must not be lost on the way."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from gpulease.system.loopback_ports import free_port
from tests.helpers import wait_for_async

GATE = web.AppKey("gate", asyncio.Event)
SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"


async def socket(request):
    ws = web.WebSocketResponse(protocols=[SUBPROTOCOL], max_msg_size=0)
    await ws.prepare(request)
    await ws.send_str("first")  # before the browser's side can be open
    async for message in ws:
        if message.data == "leave":
            await ws.close(code=4001, message=b"as asked")
        elif message.type is aiohttp.WSMsgType.BINARY:
            await ws.send_bytes(message.data)
        else:
            await ws.send_str(f"{message.data} from {request.headers['Host']}")
    return ws


async def slow(request):
    await request.app[GATE].wait()
    return web.Response(text="done")


async def quick(request):
    return web.Response(text="quick")


async def refuse(request):
    raise web.HTTPForbidden


async def error_page(request):
    answer = web.Response(text=f"nobody is there for {request.query['url']}", status=200)
    answer.set_cookie("_xsrf", "a stranger's", path="/")
    return answer


@asynccontextmanager
async def behind_proxy():
    """A server with its proxy before it; gives the proxy's address and the server's gate."""
    app = web.Application()
    app[GATE] = asyncio.Event()
    app.add_routes(
        [
            web.get("/socket", socket),
            web.get("/slow", slow),
            web.get("/quick", quick),
            web.get("/refused", refuse),
            web.get("/error/503", error_page),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", server := free_port()).start()
    port, api, nobody = free_port(), free_port(), free_port()
    process = subprocess.Popen(  # noqa: ASYNC220  # it is there at once
        [
            *(sys.executable, "-m", "gpulease.demo.proxy", "--ip", "127.0.0.1"),
            *("--port", str(port), "--api-ip", "127.0.0.1", "--api-port", str(api)),
            *("--default-target", f"http://127.0.0.1:{server}", "--log-level", "ERROR"),
            *("--error-target", f"http://127.0.0.1:{server}/error"),
        ]
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as session:
            route = {"target": f"http://127.0.0.1:{nobody}"}

            async def answers():
                try:
                    told = await session.post(f"http://127.0.0.1:{api}/api/routes/away", json=route)
                    return told.ok and (await session.get(f"{url}/quick")).status == 200
                except aiohttp.ClientError:
                    return False

            await wait_for_async(answers, what="the proxy answers on both of its ports")
            yield url, session, app[GATE]
    finally:
        process.terminate()
        process.wait(30)
        await runner.cleanup()


def run(test):
    async def inside():
        async with asyncio.timeout(90), behind_proxy() as (url, session, gate):
            await test(url, session, gate)

    asyncio.run(inside())


def test_the_subprotocol_and_the_first_message_arrive():
    async def test(url, session, _):
        async with session.ws_connect(f"{url}/socket", protocols=["other", SUBPROTOCOL]) as ws:
            assert ws.protocol == SUBPROTOCOL
            assert await ws.receive_str() == "first"
            await ws.send_str("hello")
            assert await ws.receive_str() == f"hello from {url.removeprefix('http://')}"

    run(test)


def test_a_large_message_comes_through_both_ways():
    async def test(url, session, _):
        large = bytes(range(256)) * 4 * 20_000  # 20 MB: over the default of 10
        async with session.ws_connect(f"{url}/socket", max_msg_size=0) as ws:
            await ws.receive_str()
            await ws.send_bytes(large)
            assert await ws.receive_bytes() == large

    run(test)


def test_the_browser_learns_that_the_server_closed_and_why():
    async def test(url, session, _):
        async with session.ws_connect(f"{url}/socket") as ws:
            await ws.receive_str()
            await ws.send_str("leave")
            closed = await ws.receive()
            assert closed.type is aiohttp.WSMsgType.CLOSE
            assert ws.close_code == 4001

    run(test)


def test_a_refused_websocket_is_refused_to_the_browser():
    async def test(url, session, _):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{url}/refused")
        assert refused.value.status == 403

    run(test)


def test_fifty_waiting_requests_do_not_stop_the_next():
    async def test(url, session, gate):
        waiting = [asyncio.ensure_future(session.get(f"{url}/slow")) for _ in range(50)]
        async with session.get(f"{url}/quick") as answer:
            assert await answer.text() == "quick"
        assert not any(request.done() for request in waiting)
        gate.set()
        for request in waiting:
            assert (await request).status == 200

    run(test)


def test_the_page_about_a_server_that_is_not_there_brings_no_cookie():
    """The hub wrote it for nobody; its cookie would replace the one of the reader's log-in."""

    async def test(url, session, _):
        async with session.get(f"{url}/away/home") as answer:
            assert answer.status == 503
            assert answer.content_type == "text/plain"
            assert await answer.text() == "nobody is there for /away/home"
            assert "Set-Cookie" not in answer.headers

    run(test)
