"""gpulease in one home kernel: what holds route, gate, relay, lease and transfer together.

A session gives a cell its order: where it runs, what is brought first, what is shown, what is
committed afterwards.  Main thread only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.attach import LocalSupervisor, read_connection
from gpulease.kernel.cells import GPUCells
from gpulease.kernel.completion import Completion
from gpulease.kernel.gate import Gate
from gpulease.kernel.options import HELP, CellOptions, parse_duration, parse_options
from gpulease.kernel.parts import Parts
from gpulease.kernel.relay import mark_shown, remote_error, say
from gpulease.kernel.route import Route, Side
from gpulease.kernel.unattended import give_way, told_apart
from gpulease.protocol.names import ENV_BUS
from gpulease.protocol.service import LeaseView
from gpulease.sides.state.process_state import ProcessState

if TYPE_CHECKING:
    from gpulease.kernel.auto.classify import Decision
    from gpulease.kernel.auto.resume import Resume
    from gpulease.kernel.widgets import WidgetRelay

NO_SEED = (
    "PYTHONHASHSEED is not set: strings hash differently on the two sides, so sets may show their "
    "items in another order. Start Jupyter with PYTHONHASHSEED=0 to avoid it."
)


class Session(Parts):
    """One home kernel's gpulease; made by ``load_ipython_extension``."""

    def __init__(self, shell: Any, state: ProcessState, typed: Callable[[], str]) -> None:
        super().__init__(shell, state)
        self._typed = typed  # the text of the running cell, as Python
        #: Which cells run on the GPU: ``auto``, ``all`` or ``none``.
        self.which = "none"
        self._decided: Decision | None = None  # what ``%gpu auto`` found of the last cell
        self._resume: Resume | None = None
        #: Which cells the person wants on the GPU whenever the notebook is open, "" for no wish.
        self.kept_cells = ""
        self._local: LocalSupervisor | None = None
        self._widgets: WidgetRelay | None = None
        self.front: Any = None  # set by the first front end that opens the comm
        self.link.clicked = self._clicked
        self.link.was_sticky = self._was_sticky
        self.link.detached = self._detached
        self.gate = Gate(self)
        self.completion = Completion(self)
        self.cells = GPUCells(self, self.gate)

    @property
    def widgets(self) -> WidgetRelay:
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

    def is_sticky(self, cell: str) -> bool:
        """Whether the cell that comes now goes away, where it does not say so itself."""
        self.link.claim_click()
        decided = self._look_at(cell) if self.which == "auto" else None
        if not self.running:  # a cell inside one (%%capture) is no cell of its own to the reader
            self._decided = decided
        return self.which == "all" if decided is None else decided.away

    def _look_at(self, cell: str) -> Decision:
        from gpulease.kernel.auto.classify import decide
        from gpulease.kernel.auto.kinds import Kinds

        if not self.connected_once:
            return decide(cell, Kinds(self.shell.user_ns).of)
        return decide(cell, Kinds(self.shell.user_ns, self.home.away_names()).of)

    def turn(self, which: str) -> None:
        """Let ``auto``, ``all`` or ``none`` of the cells run on the GPU."""
        if which == "auto":
            from gpulease.kernel.auto.resume import Resume

            if self._resume is None:
                self._resume = Resume(self.shell, self._hidden, self._typed, self._run_rest)
        elif self._resume is not None:
            self._resume.remove()
            self._resume = None
        self.which = which
        if self.link.bus is not None:
            self.link.bus.notify("sticky", {"on": which != "none"})
        self.changed()

    def kept(self) -> dict[str, str]:
        """Return what ``%gpu config`` set that a front end keeps with the notebook."""
        wait = "" if self.default_wait is None else f"{self.default_wait:g}s"
        found = {"class": self.default_class or "", "wait": wait, "cells": self.kept_cells}
        return {name: value for name, value in found.items() if value}

    def take_kept(self, config: Mapping[str, Any]) -> None:
        """Take over what a front end read from the notebook's file, where it can be used here."""
        if self.unattended or self.kept():
            return
        name, wait, cells = (str(config.get(each, "")) for each in ("class", "wait", "cells"))
        with suppress(GPULeaseError):  # of another hub, or written by hand
            if name:
                self.waiter.offered(name)
                self.default_class = name
        with suppress(GPULeaseError):
            self.default_wait = parse_duration(wait) if wait else self.default_wait
        if cells in ("auto", "all", "none"):
            self.kept_cells = cells
            self.turn(cells)
        self.changed()

    def goes_on(self) -> str | None:
        """Whether a cell that wants a GPU goes on on one (``wrap.Cells``)."""
        return self._resume.judge() if self._resume is not None else ""

    def _run_rest(self, source: str) -> None:
        self.cells.run(source, self.options(""))
        self.home.before_home_cell("")  # for what is done here behind the cell

    def _say_where(self, way: Route) -> None:
        """Under a cell that ``%gpu auto`` sent to the GPU: that it ran there, and why."""
        if self._depth > (way.side is Side.HOME):  # what is inside a cell may be captured
            return
        decided, self._decided = self._decided, None
        if decided is None or way.asked or not way.reads.strip():
            return
        if self._went_on(way):
            line = self._resume.since if self._resume is not None else 0
            where = "on the GPU" if line == 1 else f"on the GPU from line {line} on"
            say(self.shell, f"Ran {where}: it asks for a GPU.")
            return
        if way.side is Side.AWAY:
            say(self.shell, f"Ran on the GPU: {decided.why}.")

    def _went_on(self, way: Route) -> bool:
        """Whether a cell that began here ended on the GPU."""
        return way.side is Side.HOME and self._resume is not None and self._resume.since > 0

    def run_routed(self, way: Route, typed: str, *, silent: bool) -> None:  # noqa: ARG002
        """Run a cell away (``wrap.Cells``)."""
        self.alone = not way.first and self._depth == 0
        for line in way.first:
            self.gate.line_magic(line)
        options = self.options(way.options)
        if options.help:
            print(HELP)  # noqa: T201 - a magic's answer is its output
            return
        if not way.body.strip() or _only_comments(way.body):
            return
        if way.about_error and not self.cells.failed:
            self.run_here(way.body)
            return
        if options.else_cpu and not self._have_gpu(options):
            self.run_here(way.body)
            return
        self._give_way()
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
        try:
            self.cells.run(body, options, silent=silent)
        finally:
            self._say_where(way)
        self.gate.both_at_home(way.both)

    def _give_way(self) -> None:
        if self.unattended:
            try:
                give_way(self.link, self.inbox)
            except GPULeaseError as error:
                say(self.shell, error.sentence)

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
        return parse_options(line).with_defaults(self.defaults, wait=self.default_wait)

    def before_home(self, way: Route) -> None:
        """Pass the gate (``wrap.Cells``)."""
        self.enter()
        try:
            if self.unattended:
                self.inbox.run_ready()  # a run's cells follow each other closely
            self.say_notes()
            if self._widgets is not None:
                self._widgets.wait_for_callbacks()
            with told_apart(unattended=self.unattended):
                self.miss_nothing()
                self.gate.before(way)
        except BaseException:
            self.leave()
            raise

    def after_home(self, way: Route, *, failed: bool) -> None:
        """Close a home cell (``wrap.Cells``)."""
        try:
            self._say_where(way)
            self.gate.after(way, failed=failed)
            if failed and not self._went_on(way):
                self.cells.failed = False
        finally:
            self.last_error.tidy()
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

    def _on_comm(self, message: dict[str, Any]) -> None:
        self.widgets.from_companion(message)

    def _clicked(self, lease: LeaseView) -> None:
        if self.which != "none":
            return
        every = lease["click_runs_cells"] == "all"
        self.turn("all" if every else "auto")
        which = "cells now run" if every else "cells that use a GPU library now run"
        self.link.notices.add(
            f"You asked for a GPU ({lease['gpu_class']}): {which} on it. "
            "%gpu off runs them here again, %%cpu one cell."
        )

    def _was_sticky(self) -> None:
        """The kernel was restarted: what it was told before is forgotten, and that is said."""
        self.turn("none")
        self.link.notices.add(
            "The kernel was restarted, so cells run in your notebook again. "
            "%gpu on runs them on the GPU."
        )

    def _detached(self) -> None:
        self.files.close()
        if self._widgets is not None:
            self._widgets.close_all()


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())
