"""Home and companion without sockets, threads or clocks: what happens when is drawn, not chance.

A *tape* of small numbers says at each point how far every message has come, what the cell does not
wait for, what write-behind gets done until the next cell and what counts as small.  Where the tape
is at its end everything arrives in time.
"""

import collections
import itertools
import json

from gpulease.errors import GPULeaseError
from gpulease.transfer.registry import Borrowed
from gpulease.transfer.switch import home as home_module
from gpulease.transfer.switch.writebehind import WriteBehind
from gpulease.transfer_next import peer as peer_module
from gpulease.transfer_next.api import TransferSettings
from gpulease.wire.message import Message, Pending
from tests.transfer import stepped_main
from tests.transfer.child import Child
from tests.transfer.companion_main import run
from tests.transfer.pair import CellError, Pair
from tests.transfer.stepped_main import decoded, encoded

#: What counts as small, and how much of it travels unasked: bytes.
NOTHING_SMALL = (-1, -1)
SIZES = ((2**24, 2**26), NOTHING_SMALL, (150, 300), (400, 2**26), (2**24, 200))


class Tape:
    """Numbers that decide; 0, what is usual, at its end."""

    def __init__(self, numbers=()):
        self._left = collections.deque(numbers)

    def choose(self, count):
        return self._left.popleft() % count if self._left else 0


class Wire:
    """Home's end: two queues of messages, and the companion's own of requests."""

    broken = False

    def __init__(self, pair):
        self._pair = pair
        self._numbers = itertools.count(1)
        self._pending = {}
        self.out, self.back = collections.deque(), collections.deque()
        self.waiting = 0

    # ---- as gpulease.wire.connection.Wire

    def connect(self, endpoint, keys):
        pass

    def close(self):
        for pending in self._pending.values():
            pending.finish(None, GPULeaseError("companion_gone", "Closed."))

    def request(self, kind, body, blobs=(), progress=None, beside=0):
        pending = self.expect()
        blobs = [bytearray(memoryview(b).cast("B")) for b in blobs]
        message = encoded(Message(pending.number, kind, body, blobs))
        self.out.append(json.loads(json.dumps(message)))
        return pending

    def expect(self):
        number = next(self._numbers)
        self._pending[number] = pending = SteppedPending(number, None)
        pending.wire = self
        return pending

    def answered(self, number, body):
        self._finish(Message(0, "reply", body, [], number))

    def cancel(self, pending):
        self._pending.pop(pending.number, None)
        pending.finish(None, GPULeaseError("interrupted", "The transfer was interrupted."))
        self.abort(pending)

    def abort(self, pending):
        self.out.append(encoded(Message(0, "cancel", {"number": pending.number})))

    def _finish(self, message):
        pending = self._pending.pop(message.reply_to, None)
        if pending is None:
            return
        if message.kind == "refusal":
            pending.finish(None, GPULeaseError.from_problem(message.body))
        else:
            pending.finish(message, None)

    # ---- steps

    def step(self):
        """Let one message come one stage further; False where there is none."""
        can = [stage for stage, there in self._stages() if there]
        if not can:
            return False
        can[self._pair.tape.choose(len(can))]()
        return True

    def _stages(self):
        return (self._arrive, self.back), (self.serve, self.waiting), (self._deliver, self.out)

    def _arrive(self):
        self._finish(decoded(self.back.popleft()))

    def serve(self, patience=None):
        self._pair.order({"op": "serve", "patience": patience})

    def _deliver(self):
        self._pair.order({"op": "deliver", "message": self.out.popleft()})

    def until(self, pending):
        while not pending.done.is_set():
            assert self.step(), "home waits, and nothing is under way"

    def within(self, pending):
        """Go on until this is answered, or until the tape says that it takes too long."""
        steps = 1 if self._pair.late else self._pair.tape.choose(7)
        if not steps:
            self.until(pending)
        for _ in range(steps - 1):
            pending.done.is_set() or self.step()
        return pending.done.is_set()

    def drift(self):
        """Some time passes."""
        for _ in range(self._pair.tape.choose(5)):
            self.step()


class SteppedPending(Pending):
    """A short wait ends when the tape lets it, a long one with the answer."""

    def wait(self, seconds=None):
        if seconds is None or seconds > 1:
            self.wire.until(self)
        elif not self.wire.within(self):
            return None
        return super().wait(0)


class Enough(GPULeaseError):
    """Write-behind got so far until the next cell."""


class Behind(WriteBehind):
    """Write-behind's pass on the test's own thread, as far as the tape lets it come."""

    pair = None

    def wake(self, late=None, *, everything=False):
        self._paused = False
        self._late = late
        self.pair.behind = self

    def pause(self):
        self._paused = True
        self.pair.behind = None
        for pending in (self._pending, self._late):
            if pending is not None and not pending.done.is_set():
                self._peer.wire.cancel(pending)
        self._pending = self._late = None

    def close(self):
        self._stop = True
        self._work.set()
        self._thread.join(5)

    def go(self):
        try:
            while True:
                late = self._late is not None
                self._pass()
                if not late:
                    return
        except GPULeaseError:
            return

    def _wait(self, pending):
        self._pending = pending
        if not self._peer.wire.within(pending):
            raise Enough("enough", "")
        self._pending = None
        return pending.wait()

    def _stage(self, message):
        if message.body.get("current"):
            return True
        self._arrivals.stage(message)
        if self.pair.cell_runs or self.pair.tape.choose(3) == 1:
            raise Enough("enough", "")
        self.pair.side.commit_pending()
        return not self._paused

    def _then_rest(self):
        pass


class SteppedPair(Pair):
    """One companion process for many programs; `begin` starts each anew with its own tape."""

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        monkeypatch.setattr(peer_module, "Wire", lambda *_: Wire(self))
        monkeypatch.setattr(home_module, "WriteBehind", Behind)
        monkeypatch.setattr(Behind, "pair", self)
        monkeypatch.setattr(Borrowed, "_watch", lambda _: None)
        self.child = Child(stepped_main.main)
        self.side = self.behind = None

    def begin(self, tape=()):
        """Forget everything, on both sides."""
        self._leave()
        for name in set(self.ns) - self.hidden:
            del self.ns[name]
        self.tape, self.behind, self.cell_runs = Tape(tape), None, False
        self.count = self.homes = 0
        #: For tests that say themselves what happens: no answer is waited for, and what is small.
        self.late, self.sizes = False, None
        #: Whether what only a registry holds goes at once, and not when the tape says so.
        self.drops = False
        self.side = self.make_side()
        self.child.tell({"op": "new"})
        self.child.hear()
        self.side.connect(None, None)

    def _leave(self):
        if self.side is not None:
            self.side.disconnect(died=False)

    def close(self):
        self._leave()
        self.child.close()

    # ---- talking with the companion

    def order(self, order):
        self.child.tell(order)
        answer = self.child.hear()
        wire = self.side.peer.wire
        wire.back += answer["sent"]
        wire.waiting = answer["waiting"]
        return answer

    # ---- cells

    def home(self, source):
        self._meanwhile()
        report = self.side.before_home_cell(source)
        self.cell_runs = True
        if self.behind is not None:
            self.behind.go()
        try:
            return run(self.ns, source)
        finally:
            self.cell_runs = False
            self.homes += 1
            self.side.after_home_cell(self.homes)
            self.last = report

    def gpu(self, source):
        self._meanwhile()
        self.last = self.side.before_gpu_cell(source)
        wire = self.side.peer.wire
        self.count += 1
        expect = json.loads(json.dumps(self.side.expect_gpu_cell()))
        wire.drift()
        if wire.waiting and (looks := self.tape.choose(6)):
            wire.serve(looks - 1)  # the cell starts while this is under way
        self.order({"op": "start", "source": source, "expect": expect})
        wire.drift()
        answer = self.order({"op": "run", "source": source, "count": self.count})
        self._drop()
        wire.drift()
        self.after = self.side.after_gpu_cell(self.count, answer["nothing_new"])
        if answer.get("error"):
            raise CellError(answer["error"])
        return answer

    def _meanwhile(self):
        """The notebook is idle; then it is decided anew what counts as small."""
        if self.behind is not None:
            self.behind.go()
        self.side.peer.wire.drift()
        self._drop()
        self._size("home")
        self._size("gpu")

    def _drop(self):
        """What only a registry holds goes, at times."""
        where = 3 if self.drops else self.tape.choose(4)
        if where & 1:
            self.side.side.registry.borrowed.look(0)
        if where & 2:
            self.order({"op": "look"})

    def _size(self, where):
        small, eager = self.sizes or SIZES[self.tape.choose(len(SIZES))]
        sizes = {"small_bytes": small, "eager_bytes": eager}
        if where == "home":
            self.side.side.settings = TransferSettings(**sizes)
        else:
            self.order({"op": "settings", "settings": sizes})
