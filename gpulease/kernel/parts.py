"""The parts of gpulease in one home kernel that do the work of its cells, and what they share.

All of it on the kernel's main thread.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulease.channel.iothread import IOThread
from gpulease.errors import GPULeaseError
from gpulease.kernel.execution import Executor
from gpulease.kernel.files import MirroredFiles
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.lease import LeaseLink
from gpulease.kernel.notices import CellNote
from gpulease.kernel.options import parse_options
from gpulease.kernel.outputs import CARRIER, LastError, Results
from gpulease.kernel.relay import QueueProgress, Relay, say
from gpulease.kernel.tokens import parse_shared
from gpulease.kernel.wait import Waiter
from gpulease.kernel.wrap import typed_by_person
from gpulease.protocol.names import ENV_BUS, ENV_CELL_OPTIONS, ENV_SHARED
from gpulease.sides.state.process_state import ProcessState
from gpulease.transfer.api import LAST_ERROR, SwitchReport

if TYPE_CHECKING:
    from gpulease.transfer.home import HomeSide

log = logging.getLogger(__name__)

#: A switch shows its progress when it takes longer than this, and as often (seconds).
UNSEEN_SECONDS = 0.5


class Parts(ABC):
    """What gate, GPU cells, completion and widgets of one kernel have in common."""

    def __init__(self, shell: Any, state: ProcessState) -> None:
        self.shell = shell
        self._state = state
        self.kernel = shell.kernel
        self.alone = False  # the running cell is a GPU cell that has shown nothing but progress
        self.inbox = Inbox(self._wake)
        self._io: IOThread | None = None
        self._home: HomeSide | None = None
        self._depth = 0
        #: What GPU cells ask for where they say nothing; ``%gpu config`` changes class and wait.
        # A run of a whole notebook. Without a lease service the options are a site's or a grader's.
        self.unattended = ENV_CELL_OPTIONS in os.environ and bool(os.environ.get(ENV_BUS))
        self.defaults = parse_options(os.environ.get(ENV_CELL_OPTIONS, ""))
        self.default_class = self.defaults.gpu_class
        self.default_wait = self.defaults.wait
        self._shared = _sites_shared()
        self.on_change: Callable[[], None] = lambda: None
        self.results = Results(shell, self._fetch_result)
        self.last_error = LastError(lambda: self._fetch_result(LAST_ERROR))
        self.relay = Relay(shell, self._on_comm, self.results.add)
        self.executor = Executor(self.inbox, self.relay, self.kernel)
        self.link = LeaseLink(
            kernel_id=_kernel_id(), inbox=self.inbox, io=lambda: self.io, home=lambda: self.home,
            executor=self.executor, changed=self.changed,
        )  # fmt: skip
        self.note = self.link.notices.note = CellNote(shell, self.relay)
        self.link.departure.leaving = self.results.resolve_all
        self.files = self.link.departure.files = MirroredFiles(lambda: self.link.attachment)
        self.link.in_cell = lambda: self._depth > 0
        self.link.by_person = lambda: self.by_person
        self.waiter = Waiter(
            shell,
            self.inbox,
            self.link,
            lambda: self.default_class,
            lambda: self.alone,
            unattended=self.unattended,
        )

    @abstractmethod
    def _on_comm(self, message: dict[str, Any]) -> None:
        """A GPU cell opened or spoke to a widget."""

    @property
    def io(self) -> IOThread:
        """The I/O thread, started by the first connection."""
        if self._io is None:
            self._io = IOThread()
        return self._io

    @property
    def home(self) -> HomeSide:
        """The transfer side of this kernel."""
        if self._home is None:
            from gpulease.transfer.home import HomeSide

            self._home = HomeSide(
                self.shell.user_ns,
                hidden=self._hidden,
                state=self._state,
                on_staged=lambda: self.inbox.put(lambda: None),  # the loop commits when idle
            )
            self._home.share_variables(self._shared)
        return self._home

    @property
    def shared(self) -> tuple[str, ...]:
        """Environment variables that are taken to the GPU although they hold secrets."""
        return self._shared

    @shared.setter
    def shared(self, names: tuple[str, ...] | None) -> None:
        self._shared = _sites_shared() if names is None else names
        if self._home is not None:
            self._home.share_variables(self._shared)

    @property
    def connected_once(self) -> bool:
        """Whether there ever was a companion: before that no value can be anywhere else."""
        return self._home is not None

    @property
    def running(self) -> bool:
        """Whether a cell runs now."""
        return self._depth > 0

    @property
    def by_person(self) -> bool:
        """Whether what runs now is a person's cell, and no request of a tool's."""
        return typed_by_person(self.kernel.get_parent("shell"))

    def enter(self) -> None:
        """A cell, or a GPU cell inside one, begins."""
        self._depth += 1
        if self._depth == 1 and self.by_person:
            self._tell_cell(busy=True)

    def leave(self) -> None:
        """It ended; what waited for the border between cells goes on."""
        self._depth -= 1
        if self._depth == 0:
            if self.by_person:
                self._tell_cell(busy=False)
            self.changed()
            self.inbox.put(self.link.departure.now)

    def miss_nothing(self) -> None:
        """In a run, refuse a person's cell after a loss: it would miss values, and blame the
        notebook.

        Raises:
            GPULeaseError: how values were lost since the last cell.
        """
        if not self.by_person:
            return
        lost, self.link.lost = self.link.lost, None
        if lost is not None and self.unattended:
            raise lost

    def _hidden(self) -> set[str]:
        """Names that IPython and gpulease put there, unless the person gave them a new value."""
        names = self.shell.user_ns
        hidden = self.shell.user_ns_hidden
        return {name for name, value in hidden.items() if names.get(name) is value}

    def _fetch_result(self, execution_count: int) -> Any:
        return self.home.result(execution_count)

    def _tell_cell(self, *, busy: bool) -> None:
        if self.link.bus is not None:
            self.link.bus.notify("cell", {"busy": busy})

    def changed(self) -> None:
        """Tell the front end what is new."""
        self.on_change()

    def say_report(self, *reports: SwitchReport) -> None:
        """Show what switches have to say under the person's cell, each sentence once."""
        notes = [note for report in reports for note in report.notes]
        # What was only shown is no variable, and nobody can give it again.
        sentences = [note.sentence for note in notes if note.names != (CARRIER,)]
        if not self.by_person:
            self.link.notices.add(*dict.fromkeys(sentences))
            return
        for sentence in dict.fromkeys(sentences):
            say(self.shell, sentence)

    def say_notes(self) -> None:
        """Show what happened to the lease since a person's cell was last told."""
        if not self.by_person:
            return
        notes = self.link.notices.take()
        self.alone = self.alone and not notes
        for note in notes:
            say(self.shell, note)

    def progress_callback(self, progress: QueueProgress) -> Callable[[str, int, int], None]:
        """Return what shows the progress of moving a large value."""
        if not self.by_person:
            return lambda _name, _done, _total: None
        shown = time.monotonic()

        def show(name: str, done: int, total: int) -> None:
            # What takes no time to see would only flicker, and so would every packet.
            nonlocal shown
            if time.monotonic() - shown > UNSEEN_SECONDS:
                shown = time.monotonic()
                what = name or "variables"
                size = f": {done / 1e6:.0f} of {total / 1e6:.0f} MB" if total >= 10**6 else ""
                progress.show(f"Moving {what}{size}")

        return show

    def _wake(self) -> None:
        loop = getattr(self.kernel, "io_loop", None)
        if loop is not None:
            loop.add_callback(self._between)

    def _between(self) -> None:
        self.inbox.run_ready()
        if self._depth == 0:
            self.link.finish_ready()
            self.link.departure.commit()


def _sites_shared() -> tuple[str, ...]:
    """Return what the site lets every notebook take along."""
    try:
        return parse_shared(os.environ.get(ENV_SHARED, ""))
    except GPULeaseError as error:
        log.warning("%s: %s", ENV_SHARED, error.sentence)
        return ()


def _kernel_id() -> str:
    from ipykernel.connect import get_connection_file

    name = Path(get_connection_file()).stem
    return name.removeprefix("kernel-")
