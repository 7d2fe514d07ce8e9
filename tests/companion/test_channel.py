"""The supervisor and a lease service that goes and comes."""

import asyncio

import pytest

from tests.companion.parts import (
    Cells,
    Lease,
    LeaseService,
    closing,
    config,
    leased,
    proc_file,
)
from tests.helpers import wait_for_async

pytestmark = pytest.mark.processes


def test_hello_says_who_and_where_and_keeps_the_token_to_the_header():
    async def test():
        async with leased() as (service, lease, _home):
            hello = service.of_type("hello")[0]
            assert (hello["pid"], hello["attempt"]) == (lease.pid, 1)
            assert hello["address"].startswith("tcp://127.0.0.1:")
            assert len(hello["public_key"]) == 40
            for secret_place in ("cmdline", "environ"):
                assert b"credential" not in proc_file(lease.pid, secret_place)

    asyncio.run(test())


def test_a_cell_runs_on_while_the_service_is_away_and_the_supervisor_comes_back():
    async def test():
        async with leased() as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                msg_id = cells.begin("import threading; e = threading.Event(); e.wait(4); 1 + 1")
                service.refuse = True
                service.channels[-1].close()
                await wait_for_async(lambda: not service.channels, 30, "the channel closed")
                assert (await cells.reply(msg_id))["status"] == "ok"
                # The control server still knows its clients: keys are not the connection's.
                assert (await home.call("ping"))["ok"]
                service.refuse = False
                await wait_for_async(lambda: len(service.of_type("hello")) == 2, 60, "hello")
            first, second = service.of_type("hello")
            # A service that was away learns which keys are admitted.
            assert (first.pop("keys"), second.pop("keys")) == ({}, {home.public: ""})
            assert first == second

    asyncio.run(test())


def test_a_result_that_could_not_be_sent_is_sent_after_the_next_hello():
    async def test():
        async with leased() as (service, _lease, home):
            await home.open("k1")
            until = "2999-01-01T00:00:00+00:00"
            service.tell({"type": "drain", "until": until, "reason": "idle", "park": False})
            await home.pushed("drain")
            service.refuse = True
            service.channels[-1].close()
            await wait_for_async(lambda: not service.channels, 30, "the channel closed")
            await home.call("drained", kernel_id="k1", result="done", blockers=[])
            service.refuse = False
            await wait_for_async(lambda: service.of_type("drained"), 60, "drained")
            kinds = [m["type"] for m in service.heard if m["type"] in ("hello", "drained")]
            assert kinds == ["hello", "hello", "drained"]

    asyncio.run(test())


def test_a_granted_end_that_passed_in_silence_ends_the_lease():
    async def test():
        service = LeaseService()
        service.refuse = True
        lease = Lease()
        try:
            late = "2020-01-01T00:00:00+00:00"
            lease.tell(config(service.url, hard_end=late, drain_max=1.0))
            assert await lease.ended() == 0
        finally:
            lease.clean_up()
            await service.stop()

    asyncio.run(test())


def test_malformed_messages_change_nothing():
    async def test():
        async with leased() as (service, _lease, home):
            for raw in ("{not json", "[]", '{"type": 7}', '{"type": "fly"}'):
                service.channels[-1].write_message(raw)
            assert (await home.call("ping"))["ok"]
            assert len(service.of_type("hello")) == 1

    asyncio.run(test())
