"""Pauses grow to a bound and start again; silence is noticed once, a break sooner."""

import asyncio
import ctypes
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.channel import curve
from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import Endpoint
from gpulease.channel.timing import BackOff, Heartbeat
from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async


def test_pauses_grow_to_their_bound_and_begin_anew() -> None:
    pauses = BackOff(0.1, 3.0)
    taken = [pauses.pause() for _ in range(10)]
    assert 0.07 <= taken[0] <= 0.13
    assert all(2.1 <= pause <= 3.9 for pause in taken[5:])
    for _ in range(10_000):  # the other end may be away for days
        assert pauses.pause() <= 3.9
    assert pauses.pause(at_least=60.0) == 60.0, "the other end knows best"
    pauses.worked()
    assert pauses.pause() <= 0.13


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 30), st.sampled_from(["heard", "broke", "connected", "looked", "looked"])
        )
    )
)
def test_the_other_end_is_lost_by_silence_that_was_listened_to_and_sooner_after_a_break(
    events,
) -> None:
    now, silent, broken, unlooked, lost = 0.0, 0.0, None, 0.0, 0
    beat = Heartbeat(now, lost_after=15.0, back_within=3.0, looks_every=2.0)
    for seconds, event in events:
        now, silent, unlooked = now + seconds, silent + seconds, unlooked + seconds
        broken = None if broken is None else broken + seconds
        if event == "heard":
            silent, broken = 0.0, None
            beat.heard(now)
        elif event == "broke":
            broken = broken or 0.0
            beat.broke(now)
        elif event == "connected":
            broken = None
            beat.connected()
        else:
            absent, unlooked = max(0.0, unlooked - 2.0), 0.0
            silent = max(0.0, silent - absent)
            broken = None if broken is None else max(0.0, broken - absent)
            gone = beat.just_lost(now)
            if abs(silent - 15.0) > 1e-6 and (broken is None or abs(broken - 3.0) > 1e-6):
                gone_for = silent > 15.0 or (broken is not None and broken > 3.0)
                assert gone == (gone_for and not lost)
            lost += gone
    assert lost <= 1
    assert beat.lost == bool(lost)


def test_a_server_whose_answers_nobody_could_read_is_not_lost(monkeypatch) -> None:
    """An extension that holds the interpreter holds the thread that reads, too."""
    monkeypatch.setattr(curve, "PING_EVERY", 0.1)
    monkeypatch.setattr(curve, "LOST_AFTER", 1.0)
    holding = ctypes.PyDLL(None).usleep  # called without letting go of the interpreter

    async def test() -> None:
        answered = asyncio.Event()
        keys, io, lost = curve.new_keys(), IOThread(), []

        async def called(client: curve.Client, name: str, args: dict[str, Any]) -> Any:
            answered.set()

        server = curve.CurveServer("127.0.0.1", called, 0, "It failed")
        server.admit(keys.public, "k1")
        client = await asyncio.to_thread(
            curve.CurveClient, io, server.endpoint, keys, pushed=print,
            lost=lambda: lost.append(True), beat=dict, gone=lambda: GPULeaseError("gone", "Gone."),
        )  # fmt: skip
        try:
            for _ in range(3):
                answered.clear()
                holding(1_500_000)
                await asyncio.wait_for(answered.wait(), 60)
            assert not lost
            assert (
                await asyncio.wait_for(asyncio.wrap_future(client.start_call("x", {})), 60) is None
            )
        finally:
            client.close()
            await asyncio.to_thread(io.stop)
            await server.stop()

    asyncio.run(test())


def test_a_connection_that_is_made_again_is_no_loss_however_long_its_first_answer_takes(
    monkeypatch,
) -> None:
    """Between the two a relay was restarted; who answers behind it was busy all the time."""
    monkeypatch.setattr(curve, "PING_EVERY", 0.1)
    monkeypatch.setattr(curve, "BACK_WITHIN", 0.5)

    async def test() -> None:
        keys, io, lost, connections = curve.new_keys(), IOThread(), [], []

        async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            if len(connections) == 1:
                writer.close()

        relay = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        client = await asyncio.to_thread(
            curve.CurveClient, io, Endpoint(address, curve.new_keys().public), keys, pushed=print,
            lost=lambda: lost.append(True), beat=dict, gone=lambda: GPULeaseError("gone", "Gone."),
        )  # fmt: skip
        try:
            await wait_for_async(lambda: len(connections) == 2, 60, "the second connection")
            began = time.monotonic()
            await wait_for_async(lambda: time.monotonic() > began + 1.5, 60, "three times as long")
            assert not lost
        finally:
            client.close()
            await asyncio.to_thread(io.stop)
            relay.close()
            for writer in connections:
                writer.close()

    asyncio.run(test())


def test_a_server_that_refuses_a_key_loses_its_client_alone() -> None:
    """Libzmq does not connect again then; what waited for room would hold the thread for ever."""

    async def test() -> None:
        keys, io, lost = curve.new_keys(), IOThread(), []

        async def called(client: curve.Client, name: str, args: dict[str, Any]) -> Any:
            return name

        server = curve.CurveServer("127.0.0.1", called, 0, "It failed")
        client = await asyncio.to_thread(
            curve.CurveClient, io, server.endpoint, keys, pushed=print,
            lost=lambda: lost.append(True), beat=dict, gone=lambda: GPULeaseError("gone", "Gone."),
        )  # fmt: skip
        try:
            call = asyncio.wrap_future(client.start_call("x", {}))
            await asyncio.wait([call], timeout=60)
            assert isinstance(call.exception(), GPULeaseError)
            await wait_for_async(lambda: lost == [True], 30, "the loss is told")
            assert await asyncio.to_thread(io.call, lambda: "the others' thread goes on")
        finally:
            client.close()
            await asyncio.to_thread(io.stop)
            await server.stop()

    asyncio.run(test())
