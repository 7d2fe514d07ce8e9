"""What a person or a lease's end asks of home: drain, fetch, resolve.

Owns those requests' order and refusals; commits are ``arrivals``' and happen on the main thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from gpulease.errors import GPULeaseError
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import DrainReport, Place, SwitchReport, VariableStatus
from gpulease.transfer_next.peer import Peer

from .arrivals import Arrivals
from .bringing import Bringing
from .unavailable import Unavailable
from .writebehind import WriteBehind


class Requests:
    """Main thread only, but for ``drain``."""

    def __init__(
        self,
        side: Side,
        unavailable: Unavailable,
        peer: Peer,
        arrivals: Arrivals,
        bringing: Bringing,
    ) -> None:
        self._side = side
        self._unavailable = unavailable
        self._peer = peer
        self._arrivals = arrivals
        self._bringing = bringing

    def drain(self, behind: WriteBehind | None, seconds: float) -> DrainReport:
        """Bring everything home within ``seconds``, on any thread."""
        deadline = time.monotonic() + seconds
        main = threading.current_thread() is threading.main_thread()
        if behind is not None and self._peer.connected:
            behind.wake(everything=True)
            while time.monotonic() < deadline and self._peer.connected:
                if main:
                    self._arrivals.commit_staged()
                if behind.settled.wait(0.02):
                    break
            if main:
                self._arrivals.commit_staged()
        done = behind is None or behind.settled.is_set()
        # What is staged is here: a home cell that still runs only puts off its commit.
        waiting = self._arrivals.uncommitted()
        blockers = tuple(
            VariableStatus(n, a.type_name, Place.GPU, a.size, a.sure, a.blocker)
            for n, a in sorted(waiting.items())
        ) + tuple(
            VariableStatus(n, "", Place.CONFLICTED, None, True, conflict.note(n).sentence)
            for n, conflict in sorted(self._unavailable.conflicts.open.items())
        )
        return DrainReport(done and not blockers, blockers)

    def fetch(self, names: Sequence[str]) -> SwitchReport:
        """Bring these names home; raises ``unknown_name`` or why one cannot come."""
        started = time.monotonic()
        remote = self._side.ledger.remote
        for name in names:
            if name not in remote and name not in self._side.ns:
                note = self._unavailable.explain(name)
                sentence = note.sentence if note else f"{name} is not defined anywhere."
                raise GPULeaseError("unknown_name", sentence)
        wanted = [name for name in names if name in remote]
        moved, size = self._bringing.fetch(wanted, strict=True) if wanted else ((), 0)
        return SwitchReport(moved, size, time.monotonic() - started)

    def resolve(self, name: str, keep: str) -> None:
        """End a conflict; raises ``no_conflict``, ``bad_choice`` or why the value cannot come."""
        others = self._unavailable.conflicts.resolve(name, keep)
        if keep == "home" and self._peer.connected:
            self._peer.ask("drop", {"names": others})
        if keep == "gpu" and others:
            self._peer.need()
            self._bringing.fetch(others, strict=True)
