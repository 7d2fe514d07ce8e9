"""What holds on every carrier."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpulease.errors import GPULeaseError
from tests.channel.carriers import CARRIERS, Carrier
from tests.helpers import wait_for_async

pytestmark = pytest.mark.parametrize("kind", list(CARRIERS))


class Answering:
    """Answers calls; what it was asked and what was taken back."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.cancelled: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, name: str, args: dict[str, Any]) -> Any:
        self.asked.append((name, args))
        if name == "refuse":
            raise GPULeaseError(
                "busy", "Not now.", next_step="Later.", numbers={"free": 2}, status=409
            )
        if name == "break":
            raise RuntimeError("a secret detail")
        if name == "wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.append(args["who"])
                raise
        return {"name": name, **args}


@asynccontextmanager
async def up(kind: str, directory: Path) -> AsyncIterator[tuple[Carrier, Answering]]:
    answering = Answering()
    carrier = CARRIERS[kind](directory, answering)
    await carrier.open()
    try:
        yield carrier, answering
    finally:
        await carrier.close()


async def test_a_call_is_answered(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, _):
        found = await carrier.call("echo", text="grüße\n", none=None, many=[1, 2.5, {"a": True}])
        expected = {"name": "echo", "text": "grüße\n", "none": None, "many": [1, 2.5, {"a": True}]}
        assert found == expected


async def test_answers_come_in_any_order(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, answering):
        slow = [carrier.begin("wait", {"who": str(n)}) for n in range(3)]
        assert (await carrier.call("echo"))["name"] == "echo"
        answering.go_on.set()
        found = await asyncio.wait_for(asyncio.gather(*slow), 30)
        assert [each["who"] for each in found] == ["0", "1", "2"]


async def test_a_refusal_arrives_whole(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, _):
        with pytest.raises(GPULeaseError) as refused:
            await carrier.call("refuse")
        error = refused.value
        assert (error.reason, error.sentence, error.next_step) == ("busy", "Not now.", "Later.")
        assert (error.numbers, error.status) == ({"free": 2}, 409)


async def test_a_failure_is_told_without_its_detail(kind, tmp_path, caplog) -> None:
    async with up(kind, tmp_path) as (carrier, _):
        with pytest.raises(GPULeaseError) as failed:
            await carrier.call("break")
        assert failed.value.reason == "internal"
        assert "secret" not in str(failed.value.to_problem())
        assert failed.value.numbers["reference"] in caplog.text
        assert (await carrier.call("echo"))["name"] == "echo"


async def test_what_is_told_arrives_in_order(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, _):
        await carrier.call("echo")
        for n in range(50):
            await carrier.tell({"event": "tick", "n": n, "id": n})
        await wait_for_async(lambda: len(carrier.pushed) == 50, 30, "what was told")
        assert [message["n"] for message in carrier.pushed] == list(range(50))


async def test_what_needs_no_answer_gets_none(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, answering):
        carrier.notify("refuse", {})
        carrier.notify("note", {"n": 1})
        assert await carrier.call("echo")
        assert ("note", {"n": 1}) in answering.asked
        assert carrier.pushed == []


async def test_a_large_message_arrives_whole(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, _):
        text = "x" * 800_000
        assert (await carrier.call("echo", text=text))["text"] == text


async def test_malformed_calls_are_refused(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, answering):
        carrier.send({"call": 7})
        carrier.send({"call": "echo", "args": "?"})
        assert (await carrier.call("echo"))["name"] == "echo"
        assert answering.asked == [("echo", {})]


async def test_a_call_that_is_taken_back_is_cancelled_there(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, answering):
        waits = carrier.begin("wait", {"who": "one"})
        stays = carrier.begin("wait", {"who": "two"})
        await wait_for_async(lambda: len(answering.asked) == 2, 30, "both calls")
        waits.cancel()
        await wait_for_async(lambda: answering.cancelled == ["one"], 30, "the cancellation")
        answering.go_on.set()
        assert (await asyncio.wait_for(stays, 30))["who"] == "two"


async def test_calls_fail_when_the_connection_breaks(kind, tmp_path) -> None:
    async with up(kind, tmp_path) as (carrier, answering):
        waits = carrier.begin("wait", {"who": "one"})
        await wait_for_async(lambda: answering.asked, 30, "the call")
        await carrier.cut()
        with pytest.raises(GPULeaseError) as failed:
            await asyncio.wait_for(waits, 30)
        assert failed.value.reason == carrier.gone_reason


async def test_it_comes_back_and_old_answers_reach_nobody(kind, tmp_path) -> None:
    if not CARRIERS[kind].comes_back:
        return
    async with up(kind, tmp_path) as (carrier, answering):
        first = carrier.begin("wait", {"who": "old"})
        await wait_for_async(lambda: answering.asked, 30, "the call")
        await carrier.cut()
        with pytest.raises(GPULeaseError):
            await asyncio.wait_for(first, 30)
        await carrier.back()
        second = carrier.begin("wait", {"who": "new"})
        await wait_for_async(lambda: len(answering.asked) == 2, 30, "the new call")
        answering.go_on.set()
        assert (await asyncio.wait_for(second, 30))["who"] == "new"
