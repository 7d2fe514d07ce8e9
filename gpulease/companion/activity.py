"""What lives in a lease, and how much of it is the user's own work.

Cells, threads, processes and CPU time are sampled once a second from ``/proc``, from outside the
companions (a cell that holds the interpreter lock is seen all the same), and sent in batches.
Idleness is decided from the samples elsewhere.

Time counts as the user's when it was spent by a process the user started, by a thread of a
companion that was not there before the first cell and is not gpulease's, or by a companion's main
thread while a cell or callback ran or a task of the user lived there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpulease.protocol.reports import Activity
from gpulease.system.process_table import (
    GONE,
    TICKS,
    ProcessRow,
    descendants,
    parse_stat,
    process_table,
)

#: Use above this share of a core is work; the same figure as for devices.
BUSY_SHARE = 0.03
_MOVING_SHARE = 0.02
#: How long a home kernel's word that a GPU cell is under way holds; it repeats it every second.
_HOME_SECONDS = 5.0
_ZMQ_THREADS = "ZMQbg/"
#: Helpers that multiprocessing leaves behind; they never compute.
_HELPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.semaphore_tracker")


@dataclass
class WatchedCompanion:
    """What a companion said about itself; its link keeps it up to date."""

    pid: int
    infrastructure: frozenset[int] = frozenset()  # thread ids from before the first cell
    transfers: frozenset[int] = frozenset()  # thread ids of gpulease's own transfers
    cells: int = 0
    most: int = 0  # that ran at a time since the last sample: one may begin and end between two
    threads: int = 0
    tasks: int = 0  # the user's tasks on the main thread's loop
    ran: bool = False  # a cell began or ended since the last sample
    clock: Callable[[], float] = time.monotonic
    _home_until: float = 0.0  # a GPU cell's values are on their way, until then

    def said_cells(self, cells: int) -> None:
        """A cell began or ended."""
        self.cells = cells
        self.most = max(self.most, cells)
        self.ran = True

    def said_home(self, *, runs: bool) -> None:
        """Home says whether a GPU cell is under way: its values on their way, running, or back."""
        self._home_until = self.clock() + _HOME_SECONDS if runs else 0.0
        self.most = max(self.most, int(runs))

    @property
    def cells_under_way(self) -> int:
        """Cells that run here, or one whose own values move; bringing home later is no cell."""
        return max(self.cells, int(self.clock() < self._home_until))


@dataclass
class _Seen:
    """CPU ticks at the last sample, by (pid, start) and by (pid, thread, start)."""

    processes: dict[tuple[int, int], int] = field(default_factory=dict)
    threads: dict[tuple[int, int, int], int] = field(default_factory=dict)


class ActivitySampler:
    """Samples all companions of one lease; call ``sample`` about once a second.

    Args:
        infrastructure: pids below this process that are neither companions nor the user's.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        infrastructure: Callable[[], Iterable[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._infrastructure = infrastructure
        self._clock = clock
        self._seen = _Seen()
        self._last: float | None = None
        self._used = False

    def sample(self, companions: Iterable[WatchedCompanion]) -> Activity:
        """Return what happened since the last call (or since a process or thread appeared)."""
        watched = list(companions)
        now = self._clock()
        span = max(0.001, now - self._last) if self._last is not None else None
        self._last = now
        seen = _Seen()
        table = process_table()
        user_processes = self._user_processes(watched, table)
        ticks = sum(self._process_ticks(row, seen) for row in user_processes)
        moved = 0
        for companion in watched:
            user, transfer = self._thread_ticks(companion, seen)
            ticks += user
            moved += transfer
            companion.ran = companion.cells > 0
        self._seen = seen
        share = 0.0 if span is None else ticks / TICKS / span
        moving = span is not None and moved / TICKS / span > _MOVING_SHARE
        cells = sum(max(companion.most, companion.cells_under_way) for companion in watched)
        self._used = self._used or cells > 0
        for companion in watched:
            companion.most = companion.cells
        return Activity(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            cells=cells,
            threads=sum(companion.threads for companion in watched),
            processes=len(user_processes),
            tasks=sum(companion.tasks for companion in watched),
            use=round(min(1.0, share), 3),
            transfers=moving,
            used=self._used,
        )

    def _user_processes(
        self, watched: list[WatchedCompanion], table: dict[int, ProcessRow]
    ) -> list[ProcessRow]:
        own = {companion.pid for companion in watched} | set(self._infrastructure())
        below = descendants([os.getpid()], table) - own
        return [table[pid] for pid in below if table[pid].alive and not _is_helper(pid)]

    def _process_ticks(self, row: ProcessRow, seen: _Seen) -> int:
        key = (row.pid, row.start)
        seen.processes[key] = row.cpu
        # A process that is new has used all its time since the last sample.
        return max(0, row.cpu - self._seen.processes.get(key, 0))

    def _thread_ticks(self, companion: WatchedCompanion, seen: _Seen) -> tuple[int, int]:
        user = transfer = 0
        for row in _threads(companion.pid):
            key = (companion.pid, row.pid, row.start)
            seen.threads[key] = row.cpu
            # Threads of before the first cell had time already when they were first seen.
            unseen = row.cpu if row.pid in companion.infrastructure else 0
            used = max(0, row.cpu - self._seen.threads.get(key, unseen))
            if row.pid in companion.transfers:
                transfer += used
            elif row.pid == companion.pid:
                user += used if companion.ran or companion.cells or companion.tasks else 0
            elif row.pid not in companion.infrastructure and not _is_zmq(companion.pid, row.pid):
                user += used
        return user, transfer


class Batches:
    """Collects samples; says when they are due: every ``seconds``, and at once on a change.

    A change is one between work, a cell without work, and neither.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._samples: list[Activity] = []
        self._since = clock()
        self._kind = ""

    def add(self, sample: Activity) -> list[Activity]:
        """Take one sample; return the batch to send now, or an empty list."""
        self._samples.append(sample)
        kind = kind_of(sample)
        changed, self._kind = kind != self._kind, kind
        if not changed and self._clock() - self._since < self._seconds:
            return []
        batch, self._samples = self._samples, []
        self._since = self._clock()
        return batch


def kind_of(sample: Activity) -> str:
    """Return ``work``, ``cell`` (one runs without work) or ``nothing``."""
    if sample["use"] > BUSY_SHARE:
        return "work"
    return "cell" if sample["cells"] else "nothing"


def _threads(pid: int) -> list[ProcessRow]:
    rows = []
    with suppress(*GONE):
        for entry in os.scandir(f"/proc/{pid}/task"):
            with suppress(*GONE):
                rows.append(parse_stat(Path(f"{entry.path}/stat").read_text(errors="replace")))
    return rows


def _is_zmq(pid: int, thread: int) -> bool:
    with suppress(*GONE):
        name = Path(f"/proc/{pid}/task/{thread}/comm").read_text(errors="replace")
        return name.startswith(_ZMQ_THREADS)
    return True  # it is gone: whatever it did is not work of now


def _is_helper(pid: int) -> bool:
    with suppress(*GONE):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(name in line for name in _HELPERS)
    return True
