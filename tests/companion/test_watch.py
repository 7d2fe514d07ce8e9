"""A supervisor's check of each second keeps running whatever fails in it."""

import asyncio
import signal

import pytest

from gpulease.companion import supervisor
from gpulease.companion.config import SupervisorConfig
from gpulease.companion.kernels import Companions

PAST = "2020-01-01T00:00:00+00:00"


class Blind(supervisor.Supervisor):
    """Every sample fails by something that nobody thought of."""

    looks = 0

    def _look(self):
        self.looks += 1
        raise KeyError("a column of /proc that is not there")


class Lost(supervisor.Supervisor):
    """The first look at the clock fails."""

    clock_looks = 0

    async def _look_at_the_clock(self):
        self.clock_looks += 1
        if self.clock_looks == 1:
            raise RuntimeError("nobody to push to")
        await super()._look_at_the_clock()


@pytest.mark.parametrize("kind", [Blind, Lost])
def test_a_stray_exception_ends_neither_the_evidence_nor_the_hard_end(kind, tmp_path, monkeypatch):
    """A lease whose service is silent ends at its hard end all the same."""
    monkeypatch.setattr(supervisor, "SAMPLE_SECONDS", 0.2)

    async def test():
        companions = Companions(tmp_path, "watch-test")
        config = SupervisorConfig("watch-test", hard_end=PAST)
        watched = kind(config, companions, set())
        return await asyncio.wait_for(watched.run(), 60), watched

    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        reason, watched = asyncio.run(test())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert reason == "expired"
    if kind is Blind:
        assert watched.looks >= 1
    else:
        assert watched.clock_looks >= 2
