"""gpulease in one home kernel: what holds route, gate, relay, lease and transfer together.

Owns the order of a cell: where it runs, what is brought first, what is shown, what is committed
after it.  All of it on the kernel's main thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpulease.channel.iothread import IOThread
from gpulease.errors import GPULeaseError
from gpulease.kernel.cellnote import CellNote
from gpulease.kernel.cells import GPUCells
from gpulease.kernel.completion import Completion
from gpulease.kernel.connect import LocalSupervisor, read_connection
from gpulease.kernel.execution import Executor
from gpulease.kernel.files import Files
from gpulease.kernel.gate import Gate
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.lease import LeaseLink
from gpulease.kernel.options import HELP, CellOptions, parse_options
from gpulease.kernel.outputs import Results
from gpulease.kernel.relay import Relay, say
from gpulease.kernel.remote_error import mark_shown, remote_error
from gpulease.kernel.route import Route
from gpulease.kernel.sources import Sources
from gpulease.kernel.wait import Progress, Waiter
from gpulease.protocol import ENV_BUS, LeaseView
from gpulease.transfer.api import Home, SwitchReport

#: A switch shows its progress when it takes longer than this, and as often (seconds).
UNSEEN_SECONDS = 0.5
NO_SEED = (
    "PYTHONHASHSEED is not set: strings hash differently on the two sides, so sets may show their "
    "items in another order. Start Jupyter with PYTHONHASHSEED=0 to avoid it."
)


class Session:
    """One home kernel's gpulease; made by ``load_ipython_extension``."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.kernel = shell.kernel
        self.sticky = False
        self.alone = False  # the running cell is a GPU cell that has shown nothing but progress
        self.inbox = Inbox(self._wake)
        self._io: IOThread | None = None
        self._home: Home | None = None
        self._local: LocalSupervisor | None = None
        self._depth = 0
        self.default_class: str | None = None
        self.default_wait: float | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.results = Results(shell, self._fetch_result)
        self.relay = Relay(shell, self._on_comm, self.results.add)
        self.executor = Executor(self.inbox, self.relay, self.kernel)
        self.link = LeaseLink(
            kernel_id=_kernel_id(), inbox=self.inbox, io=lambda: self.io, home=lambda: self.home,
            executor=self.executor, changed=self.changed,
        )  # fmt: skip
        self.link.clicked = self._clicked
        self.link.was_sticky = self._was_sticky
        self.note = self.link.notices.note = CellNote(shell, self.relay)
        self.link.detached = self._detached
        self.link.departure.leaving = self.results.resolve_all
        self.files = self.link.departure.files = Files(lambda: self.link.attachment)
        self.link.in_cell = lambda: self._depth > 0
        self.waiter = Waiter(
            shell, self.inbox, self.link, lambda: self.default_class, lambda: self.alone
        )
        self.sources = Sources(shell)
        self.gate = Gate(self)
        self._widgets: Any = None
        self.front: Any = None  # set by the first front end that opens the comm
        self.completion = Completion(self)
        self.cells = GPUCells(self)

    # Parts made when first needed

    @property
    def io(self) -> IOThread:
        """The I/O thread, started by the first connection."""
        if self._io is None:
            self._io = IOThread()
        return self._io

    @property
    def home(self) -> Home:
        """The transfer side of this kernel."""
        if self._home is None:
            from gpulease.transfer.home import HomeSide

            self._home = HomeSide(
                self.shell.user_ns,
                hidden=self._hidden,
                on_staged=lambda: self.inbox.put(lambda: None),  # the loop commits when idle
            )
        return self._home

    @property
    def connected_once(self) -> bool:
        """Whether there ever was a companion: before that no value can be anywhere else."""
        return self._home is not None

    @property
    def running(self) -> bool:
        """Whether a cell runs now."""
        return self._depth > 0

    @property
    def widgets(self) -> Any:
        """The relayed widgets, once a companion opened one."""
        if self._widgets is None:
            from gpulease.kernel.widgets import WidgetRelay

            self._widgets = WidgetRelay(self)
        return self._widgets

    def start(self) -> None:
        """Open the bus where the notebook server offers one."""
        path = os.environ.get(ENV_BUS)
        if path:
            self.link.connect_bus(path)

    def stop(self) -> None:
        """Close everything; what the companion alone has is given up."""
        if self.link.bus is not None:
            self.link.bus.close()
        if self.link.attachment is not None:
            self.link.end(None)
        self.completion.remove()
        if self._local is not None:
            self._local.stop()
        if self._io is not None:
            self._io.stop()

    # Cells

    def is_sticky(self) -> bool:
        """Whether the cell that comes now goes away."""
        self.link.claim_click()
        return self.sticky

    def turn_sticky(self, *, on: bool) -> None:
        """Let every cell run on the GPU from now on, or in the notebook again."""
        self.sticky = on
        if self.link.bus is not None:
            self.link.bus.notify("sticky", {"on": on})
        self.changed()

    def run_routed(self, way: Route, typed: str, *, silent: bool) -> None:  # noqa: ARG002
        """Run a cell away (``wrap.Cells``)."""
        self.alone = not way.first and self._depth == 0
        for line in way.first:
            self.gate.line_magic(line)
        if parse_options(way.options).help:
            print(HELP)  # noqa: T201 - a magic's answer is its output
            return
        if not way.body.strip() or _only_comments(way.body):
            return
        if way.about_error and not self.cells.failed:
            self.run_here(way.body)
            return
        options = self.options(way.options)
        if options.else_cpu and not self._have_gpu(options):
            self.run_here(way.body)
            return
        if way.installs:
            self.alone = False
            self.waiter.ensure(options)
            self.gate.install(way.installs)
        if way.about_error:
            self.cells.about_error(way.body)
            return
        body = way.without_installs
        if _only_comments(body):
            return
        self.cells.run(body, options, silent=silent)
        self.gate.both_at_home(way.both)

    def run_here(self, body: str) -> None:
        """Run a cell's body at home inside the running cell, with the same outcome."""
        result = self.shell.run_cell(f"%%cpu\n{body}")
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            shown = remote_error(type(error).__name__, str(error), self.shell._last_traceback or ())  # noqa: SLF001
            mark_shown(shown)
            raise shown

    def options(self, line: str) -> CellOptions:
        """Parse a ``%%gpu`` line with this notebook's settings (``%gpu config``) behind it."""
        found = parse_options(line)
        if found.wait is None and self.default_wait is not None:
            return CellOptions(**{**found.__dict__, "wait": self.default_wait})
        return found

    def before_home(self, way: Route) -> None:
        """Pass the gate (``wrap.Cells``)."""
        self.enter()
        try:
            self.say_notes()
            self.gate.before(way)
        except BaseException:
            self.leave()
            raise

    def after_home(self, way: Route, *, failed: bool) -> None:
        """Close a home cell (``wrap.Cells``)."""
        try:
            self.gate.after(way, failed=failed)
            if failed:
                self.cells.failed = False
        finally:
            self.leave()

    def explain(self, name: str) -> str:
        """Say why a name is absent (``wrap.Cells``)."""
        return self.gate.explain(name)

    # Connecting

    def connect(self, target: str) -> None:
        """``%gpu connect TARGET``: attach to a companion without a hub."""
        if self.link.attachment is not None:
            raise GPULeaseError(
                "connected",
                "This notebook has a companion already.",
                next_step="%gpu return gives it back first.",
                status=409,
            )
        if target == "local":
            self._local = self._local or LocalSupervisor()
            self.link.target = self._local.reach
        else:
            path = Path(target).expanduser().absolute()
            read_connection(path)
            self.link.target = lambda: read_connection(path)
        try:
            self.waiter.ensure(CellOptions())
        except BaseException:
            self.link.target = None
            raise
        if not os.environ.get("PYTHONHASHSEED", "").isdecimal():
            say(self.shell, NO_SEED)

    def _have_gpu(self, options: CellOptions) -> bool:
        try:
            self.waiter.ensure(options)
        except GPULeaseError as error:
            say(self.shell, f"{error.sentence} This cell runs here, on the CPU (--else cpu).")
            return False
        return True

    # Between the parts

    def _wake(self) -> None:
        loop = getattr(self.kernel, "io_loop", None)
        if loop is not None:
            loop.add_callback(self._between)

    def _between(self) -> None:
        self.inbox.run_ready()
        if self._depth == 0:
            self.link.finish_ready()
            self.link.departure.commit()

    def enter(self) -> None:
        """A cell, or a GPU cell inside one, begins."""
        self._depth += 1
        if self._depth == 1:
            self._tell_cell(busy=True)

    def leave(self) -> None:
        """It ended; what waited for the border between cells goes on."""
        self._depth -= 1
        if self._depth == 0:
            self._tell_cell(busy=False)
            self.changed()
            self.inbox.put(self.link.departure.now)

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

    def say_report(self, *reports: SwitchReport) -> None:
        """Show what switches have to say under the cell, each sentence once."""
        sentences = [note.sentence for report in reports for note in report.notes]
        for sentence in dict.fromkeys(sentences):
            say(self.shell, sentence)

    def say_notes(self) -> None:
        """Show what happened to the lease since it was last told."""
        notes = self.link.notices.take()
        self.alone = self.alone and not notes
        for note in notes:
            say(self.shell, note)

    def shower(self, progress: Progress) -> Callable[[str, int, int], None]:
        """Return what shows the progress of moving a large value."""

        shown = time.monotonic()

        def show(name: str, done: int, total: int) -> None:
            # What takes no time to see would only flicker, and so would every packet.
            nonlocal shown
            if time.monotonic() - shown > UNSEEN_SECONDS:
                shown = time.monotonic()
                what = name or "variables"
                progress.show(f"Moving {what}: {done / 2**20:.0f} of {total / 2**20:.0f} MiB")

        return show

    def _on_comm(self, message: dict[str, Any]) -> None:
        self.widgets.from_companion(message)

    def _clicked(self, lease: LeaseView) -> None:
        if not self.sticky:
            self.turn_sticky(on=True)
            self.link.notices.add(
                f"You asked for a GPU ({lease['gpu_class']}): cells now run beside it. "
                "%gpu off runs them here again, %%cpu one cell."
            )

    def _was_sticky(self) -> None:
        """The kernel was restarted: what it was told before is forgotten, and that is said."""
        self.turn_sticky(on=False)
        self.link.notices.add(
            "The kernel was restarted, so cells run in your notebook again. "
            "%gpu on runs them on the GPU."
        )

    def _detached(self) -> None:
        self.files.close()
        if self._widgets is not None:
            self._widgets.close_all()

    def changed(self) -> None:
        """Tell the front end what is new."""
        self.on_change()


def _kernel_id() -> str:
    from ipykernel.connect import get_connection_file

    name = Path(get_connection_file()).stem
    return name.removeprefix("kernel-")


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())
