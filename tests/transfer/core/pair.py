"""A notebook on two sides, without the wire and what is around them in `tests.transfer.pair`."""

import pickle
import sys
import types
from types import SimpleNamespace

from gpulease.errors import GPULeaseError
from gpulease.sides.names.analysis import SUBCLASSES, cell_use
from gpulease.transfer.api import StageError
from gpulease.transfer.side import Side
from tests.transfer.child import Child
from tests.transfer.companion_main import run
from tests.transfer.core import companion_main
from tests.transfer.pair import CellError


class There:
    """The companion's side, as an engine."""

    def __init__(self):
        self.child = Child(companion_main.main)
        self.away = {}

    def ask(self, order):
        answer = self.child.ask(order)
        if answer.get("error"):
            if answer.get("refused"):
                raise StageError(answer["refused"])
            raise CellError(answer["error"])
        self.away = answer.get("away", self.away)
        return answer

    def run(self, source):
        return self.ask({"op": "run", "source": source})

    def pack(self, needed, hand_over, reached):
        order = {"op": "pack", "needed": _listed(needed), "hand_over": hand_over}
        self.ask({**order, "reached": _listed(reached)})
        return pickle.loads(self.child._connection.recv_bytes())

    def acknowledge(self, _parcel):
        self.ask({"op": "acknowledge"})

    def take(self, parcel):
        self.child.tell({"op": "take"})
        self.child._connection.send_bytes(pickle.dumps(parcel, protocol=5))
        answer = self.child.hear()
        if answer.get("error"):
            raise StageError(answer["refused"]) if answer["refused"] else CellError(answer["error"])
        self.away = answer["away"]

    def lacking(self, names):
        return set(self.ask({"op": "lacking", "names": sorted(names)})["names"])


class Here:
    """Home's side."""

    def __init__(self, ns, hidden):
        self.side = Side("h", ns, hidden=hidden)
        self.ns = ns

    @property
    def away(self):
        return {name: [away.reason, away.can_come] for name, away in self.side.away().items()}

    def run(self, source):
        return run(self.ns, source)

    def pack(self, needed, hand_over, reached):
        return self.side.pack(needed, hand_over=hand_over, reached=reached)

    def acknowledge(self, parcel):
        self.side.acknowledge(parcel)

    def take(self, parcel):
        self.side.commit(self.side.stage(pickle.loads(pickle.dumps(parcel, protocol=5))))

    def lacking(self, names):
        return self.side.lacking(names)


class CorePair:
    """Home and companion; `home(source)` and `gpu(source)` run cells as a notebook would."""

    def __init__(self, monkeypatch, settings=None):
        self.main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.main)
        self.ns = self.main.__dict__
        self.hidden = {*self.ns, "__builtins__"}
        self.by_need = (settings or {}).get("small_bytes") == -1
        self.here = self.there = self.owner = None
        #: What cells of each side have read and written since it last handed over, if it is said.
        self.reached = None
        #: What was said of the last cell.
        self.last = SimpleNamespace(notes=())
        self.side = SimpleNamespace(
            away_names=lambda: sorted(self.here.away), explain=self.explain,
            status=lambda: (),
            drain=self._drain, disconnect=self._disconnect,
        )  # fmt: skip

    def attach(self):
        if self.here is None:
            self.here = Here(self.ns, self.hidden)
        self.here.side.forget_peer()
        self.owner = self.here
        self.there = There()

    @property
    def companion(self):
        return self.there.child

    def _drain(self, _seconds):
        if self.owner is self.there:
            self._move(self.there, self.here, None, hand_over=True)
            self.owner = self.here
        return SimpleNamespace(done=not self.here.away)

    def _disconnect(self, died):
        if not died:
            self._drain(60)
        self.owner = self.here

    def home(self, source):
        self._switch(self.here, self.there, source)
        return self.here.run(source)

    def gpu(self, source):
        self._switch(self.there, self.here, source)
        return self.there.run(source)

    def _switch(self, to, other, source):
        use = cell_use(source)
        if self.reached is not None:
            self.reached[to] |= set(_touched(use))
        wanted = None if _touched(use) == ["*"] or not self.by_need else use.reads | use.writes
        if self.owner is other:
            self._move(other, to, wanted, hand_over=True)
            self.owner = to
        while lacking := {n for n in to.lacking(_touched(use)) if n in to.away}:
            fixed = sorted(n for n in lacking if not to.away[n][1])
            if fixed:
                why = to.away[fixed[0]][0]
                raise GPULeaseError("cannot_move", f"{', '.join(fixed)} cannot travel: {why}")
            self._move(other, to, lacking, hand_over=False)
            if lacking & to.away.keys():
                raise AssertionError(f"asked for, and still away: {lacking} of {to.away}")

    def _move(self, start, to, wanted, hand_over):
        reached = None if self.reached is None else self.reached[start]
        parcel = start.pack(wanted, hand_over, reached)
        try:
            to.take(parcel)
        except StageError as error:
            raise GPULeaseError("cannot_move", f"cannot travel: {error}") from error
        start.acknowledge(parcel)
        if reached:
            reached.clear()

    def explain(self, name):
        if name not in self.here.away:
            return None
        return SimpleNamespace(
            sentence=f"{name} cannot be copied to the notebook: {self.here.away[name][0]}"
        )

    def restart(self):
        self.close()
        for name in set(self.ns) - self.hidden:
            del self.ns[name]
        self.here = None
        self.attach()

    def close(self):
        if self.there is not None:
            self.there.child.close()


def _touched(use):
    if use.unbounded or SUBCLASSES in use.reads:
        return ["*"]
    return sorted(use.reads | use.writes)


def _listed(names):
    return None if names is None else sorted(names)
