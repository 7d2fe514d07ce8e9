"""Pauses grow to a bound and begin anew; silence is noticed once, a break sooner."""

import asyncio
import ctypes
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.channel import curve
from gpulease.channel.iothread import IOThread
from gpulease.channel.timing import BackOff, Heartbeat
from gpulease.errors import GPULeaseError


def test_pauses_grow_to_their_bound_and_begin_anew() -> None:
    pauses = BackOff(0.1, 3.0)
    taken = [pauses.pause() for _ in range(10)]
    assert 0.07 <= taken[0] <= 0.13
    assert all(2.1 <= pause <= 3.9 for pause in taken[5:])
    pauses.worked()
    assert pauses.pause() <= 0.13


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 30), st.sampled_from(["heard", "broke", "looked"]))))
def test_the_other_end_is_lost_by_silence_that_was_listened_to_and_sooner_after_a_break(
    events,
) -> None:
    now, silent, unlooked, lost = 0.0, 0.0, 0.0, 0
    beat = Heartbeat(now, lost_after=15.0, back_within=3.0, looks_every=2.0)
    for seconds, event in events:
        now += seconds
        silent += seconds
        unlooked += seconds
        if event == "heard":
            silent = 0.0
            beat.heard(now)
        elif event == "broke":
            silent = max(silent, 12.0)
            beat.broke(now)
        else:
            silent = max(0.0, silent - max(0.0, unlooked - 2.0))
            unlooked = 0.0
            gone = beat.just_lost(now)
            if abs(silent - 15.0) > 1e-6:
                assert gone == (silent > 15.0 and not lost)
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
