"""What ``%load_ext gpulease`` puts into a shell, and how it is taken out again.

These are a wrapper, an AST transformer, magics, the name ``gpu``, completion and the front end's
comm target.  The session is made when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpulease.errors import GPULeaseError
from gpulease.kernel import blocks
from gpulease.kernel.callbacks import OWN_TARGET, Callbacks
from gpulease.kernel.route import Route, route
from gpulease.kernel.wrap import Wrapper
from gpulease.sides import logs
from gpulease.sides.blocks import gpu

if TYPE_CHECKING:
    from gpulease.kernel.session import Session
    from gpulease.sides.state.process_state import ProcessState


class Extension:
    """gpulease in one shell."""

    def __init__(self, shell: Any) -> None:
        if not hasattr(shell, "kernel"):
            raise GPULeaseError(
                "no_kernel",
                "gpulease works in notebook kernels, not in a terminal.",
                next_step="Load it in a notebook.",
            )
        self.shell = shell
        self._passed: list[bool] = []  # for each home cell that runs, whether there was a gate
        self.wrapper = Wrapper(shell, self)
        self.wrapper.install()
        logs.keep_from_cells(shell.kernel)
        self._callbacks = Callbacks(shell.kernel, self.ran_beside)
        self._transformer = blocks.BlockTransformer(lambda: self.wrapper.typed, self._is_gpu)
        shell.ast_transformers.append(self._transformer)
        gpu.away = self._call_away
        # Hidden, as what IPython itself puts there: never carried, never listed.
        shell.push({"gpu": gpu, blocks.HOOK: self._run_block}, interactive=False)
        self._register_magics()
        self._listen()

    @cached_property
    def state(self) -> ProcessState:
        """What cells change of this process, from the first one on: a GPU may come much later."""
        from gpulease.sides.state.process_state import ProcessState

        return ProcessState()

    @cached_property
    def session(self) -> Session:
        """Made when the bus speaks, or at the first GPU cell or magic."""
        from gpulease.kernel.session import Session

        session = Session(self.shell, self.state, lambda: self.wrapper.typed)
        session.start()
        return session

    @property
    def started(self) -> bool:
        """Whether there is a session yet; before that every cell is simply home's."""
        return "session" in self.__dict__

    def unload(self) -> None:
        """Undo everything."""
        self.wrapper.remove()
        self._callbacks.remove()
        logs.show_in_cells()
        gpu.away = None
        if self._transformer in self.shell.ast_transformers:
            self.shell.ast_transformers.remove(self._transformer)
        for name in ("gpu", blocks.HOOK):
            self.shell.user_ns.pop(name, None)
            self.shell.user_ns_hidden.pop(name, None)
        for kind, name in (("line", "gpu"), ("cell", "gpu"), ("cell", "cpu")):
            self.shell.magics_manager.magics[kind].pop(name, None)
        if self.started:
            self.session.stop()
            if self.session.front is not None:
                self.session.front.close()

    def _call_away(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.session.cells.call(function, args, kwargs)

    # wrap.Cells, without a session as long as there is nothing to do

    def is_sticky(self, cell: str) -> bool:
        """Whether a cell goes away (``wrap.Cells``)."""
        return self.started and self.session.is_sticky(cell)

    def run_routed(self, way: Route, typed: str, *, silent: bool) -> None:
        """Run a cell away (``wrap.Cells``)."""
        self.session.run_routed(way, typed, silent=silent)

    def before_home(self, way: Route) -> None:
        """Pass the gate (``wrap.Cells``)."""
        started = self.started
        if started:
            self.session.before_home(way)
        if not self._connected_once:
            self.state.cell_begins(way.body)
        self._passed.append(started)

    def after_home(self, way: Route, *, failed: bool) -> None:
        """Close a home cell (``wrap.Cells``)."""
        # A cell that made the session (%gpu) did not pass its gate.
        if self._passed.pop():
            self.session.after_home(way, failed=failed)

    def ran_beside(self) -> None:
        """Note that code of the person's ran beside the cells, on any thread (``wrap.Cells``)."""
        if self._connected_once:
            self.session.home.ran_beside()

    @property
    def _connected_once(self) -> bool:
        return self.started and self.session.connected_once

    def explain(self, name: str) -> str:
        """Say why a name is absent (``wrap.Cells``)."""
        return self.session.explain(name) if self.started else ""

    def goes_on(self) -> str | None:
        """Whether a cell that wants a GPU goes on on one (``wrap.Cells``)."""
        return self.session.goes_on() if self.started else ""

    def as_remote(self, error: BaseException | None) -> BaseException | None:
        """Return what is shown for an error (``wrap.Cells``)."""
        return self.session.last_error.as_remote(error) if self.started else error

    def last_error_away(self) -> bool:
        """Whether the last error was a GPU cell's (``wrap.Cells``)."""
        return self.started and self.session.cells.failed

    def _is_gpu(self, name: str) -> bool:
        return self.shell.user_ns.get(name) is gpu

    def _run_block(self, source: str, *args: Any, **options: Any) -> None:
        self.session.cells.block(source, *args, **options)

    def _register_magics(self) -> None:
        def line(text: str) -> Any:
            from gpulease.kernel.magics import line_magic

            return line_magic(self.session, text)

        def cell(text: str, body: str) -> None:
            # Inside another magic (%%time): the same way as a cell of its own.
            way = route(f"%%gpu {text}\n{body}", sticky=False)
            self.session.run_routed(way, body, silent=False)

        def cpu(text: str, body: str) -> None:  # noqa: ARG001
            self.session.run_here(body)

        from gpulease.kernel import options

        line.__doc__ = "Your GPU lease: its status, and commands.\n\n" + options.COMMANDS
        cell.__doc__ = options.HELP
        cpu.__doc__ = "Run this cell here, also where every other one runs on the GPU."
        self.shell.register_magic_function(line, "line", "gpu")
        self.shell.register_magic_function(cell, "cell", "gpu")
        self.shell.register_magic_function(cpu, "cell", "cpu")

    def _listen(self) -> None:
        """Make the session where a front end or a notebook server will speak to it."""
        import os

        from gpulease.protocol.names import ENV_BUS

        def opened(comm: Any, message: Any) -> None:
            from gpulease.kernel.front import Front

            session = self.session
            session.front = session.front or Front(session)
            session.front.opened(comm, message)

        self.shell.kernel.comm_manager.register_target(OWN_TARGET, opened)
        loop = getattr(self.shell.kernel, "io_loop", None)
        if os.environ.get(ENV_BUS):
            if loop is not None:
                loop.add_callback(lambda: self.session)
            else:  # start-up files run before the loop does: the first turn of it makes the session
                from tornado.ioloop import IOLoop

                IOLoop.current().add_callback(lambda: self.session)
