"""Differential, with interrupts and drains drawn: what ran is what a plain process has."""

import contextlib
import threading

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.verify.picture import picture
from gpulease.wire.message import gone_error
from tests.helpers import draws
from tests.transfer.pair import Pair
from tests.transfer.programs import PRELUDE, WATCHED, cells, plain

SMALL = (2**24, -1, 150, 400)


class Drawn(Pair):
    """Each request may be interrupted before it is sent, or when its answer is there."""

    def begin(self, tape):
        self.restart()
        self.tape, self.said = list(tape), []
        self.side.peer.ask = self._interrupted(self.side.peer.ask)

    def choose(self, count):
        return self.tape.pop(0) % count if self.tape else 0

    def _interrupted(self, ask):
        def asks(*args, **more):
            how = self.choose(7)
            # A drain's thread is not interrupted: its time runs out.
            is_main = threading.current_thread() is threading.main_thread()
            error = KeyboardInterrupt() if is_main else gone_error()
            if how == 1:
                self.said.append("interrupted before it is sent")
                raise error
            reply = ask(*args, **more)
            if how == 2:
                self.said.append("interrupted before the answer is read")
                raise error
            return reply

        return asks

    def play(self, beside_gpu, source):
        """Run a cell unless it is interrupted before it runs; return whether it ran."""
        self.said = []
        self.side._small = SMALL[self.choose(len(SMALL))]
        if self.choose(5) == 1:
            self.said.append("drained")
            drain = threading.Thread(target=self.side.drain, args=(30,))
            drain.start()
            drain.join()
        ran = self.ran
        with contextlib.suppress(KeyboardInterrupt):
            (self.gpu if beside_gpu else self.home)(source)
        note(", ".join(self.said))
        return self.ran > ran

    @property
    def ran(self):
        return self.homes + self.count


@pytest.fixture
def drawn(monkeypatch):
    made = Drawn(monkeypatch)
    made.attach()
    yield made
    made.close()


@settings(
    max_examples=draws(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=cells, tape=st.lists(st.integers(0, 139), max_size=60))
def test_whatever_is_interrupted(drawn, monkeypatch, program, tape):
    drawn.begin(())
    drawn.home(PRELUDE)
    drawn.tape = list(tape)
    ran = []
    try:
        for beside_gpu, source in program:
            note(("gpu: " if beside_gpu else "home: ") + source)
            if drawn.play(beside_gpu, source):
                ran.append((beside_gpu, source))
        drawn.tape.clear()
        drawn.home("globals()")
    except GPULeaseError as error:
        if error.reason != "cannot_move":
            raise
        note(f"refused: {error}")
        return
    if "GPULeaseError" in drawn.ns.get("errors", ()):  # something that stayed was asked for
        return
    loud = [why for name in WATCHED if (why := drawn.side.explain(name)) is not None]
    if not loud:
        assert picture(drawn.ns, WATCHED) == plain(ran, monkeypatch)
