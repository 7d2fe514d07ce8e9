"""What ``%load_ext gpulease`` puts into a shell, and how it is taken out again.

These are a wrapper, an AST transformer, magics, the name ``gpu``, completion and the front end's
comm target.  The session is made when it is first needed.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpulease.errors import GPULeaseError
from gpulease.kernel.route import Route, route
from gpulease.kernel.wrap import Wrapper
from gpulease.sides import logs
from gpulease.sides.blocks import ALTERNATIVES, gpu

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
        self._transformer = BlockTransformer(lambda: self.wrapper.typed, self._is_gpu)
        shell.ast_transformers.append(self._transformer)
        gpu.away = self._call_away
        # Hidden, as what IPython itself puts there: never carried, never listed.
        shell.push({"gpu": gpu, HOOK: self._run_block}, interactive=False)
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
        for name in ("gpu", HOOK):
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


_HANDLED = ("comm_open", "comm_msg", "comm_close")
#: Comms of gpulease's own, whose handlers touch no variable.
OWN_TARGET = "gpulease"


class Callbacks:
    """Calls ``ran`` after each message of the page that code of the person's may have handled.

    Its callbacks change variables as a cell does, and no cell's gate sees it: between cells, and on
    a subshell (ipykernel 7) also while a GPU cell runs.
    """

    def __init__(self, kernel: Any, ran: Callable[[], None]) -> None:
        self._kernel = kernel
        self._ran = ran
        self._handlers = {kind: kernel.shell_handlers[kind] for kind in _HANDLED}
        for kind, handler in self._handlers.items():
            kernel.shell_handlers[kind] = self._watched(handler)

    def remove(self) -> None:
        """Watch no more."""
        self._kernel.shell_handlers.update(self._handlers)

    def _watched(self, handler: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        async def watched(stream: Any, ident: Any, message: Any) -> None:
            own = self._is_own(message["content"])
            try:
                found = handler(stream, ident, message)
                if asyncio.iscoroutine(found):
                    await found
            finally:
                if not own:
                    self._ran()

        return watched

    def _is_own(self, content: dict[str, Any]) -> bool:
        """Return whether gpulease itself handles the message, or the companion does."""
        comm = self._kernel.comm_manager.comms.get(content["comm_id"])
        target = getattr(comm, "target_name", content.get("target_name"))
        return target == OWN_TARGET or bool(getattr(comm, "is_relayed", False))


HOOK = "__gpulease_block__"


class BlockTransformer(ast.NodeTransformer):
    """Rewrites ``with gpu():`` at the top level of a cell into a call that sends its text away.

    Anywhere else a ``with`` statement cannot be taken out of its function, so entering it raises
    before the body runs.
    ``source`` gives the text of the cell being transformed, ``is_gpu`` whether a name is ours.
    Raises ``InputRejected`` only: IPython drops a transformer that raises anything else, and the
    block would then run on the CPU in silence.
    """

    def __init__(self, source: Callable[[], str], is_gpu: Callable[[str], bool]) -> None:
        self._source = source
        self._is_gpu = is_gpu

    def visit(self, node: ast.AST) -> ast.AST:
        """Transform a module; anything else is left as it is."""
        if not isinstance(node, ast.Module):
            return node
        from IPython.core.error import InputRejected

        try:
            lines = self._source().splitlines()
            node.body = [self._statement(statement, lines) for statement in node.body]
            ast.fix_missing_locations(node)
        except InputRejected:
            raise
        except Exception as error:
            raise _rejected(f"gpulease could not read the cell: {error!r}") from error
        return node

    def _statement(self, node: ast.stmt, lines: list[str]) -> ast.stmt:
        if isinstance(node, ast.With) and self._has_gpu(node):
            return self._call(node, lines)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return node
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                setattr(node, field, [self._statement(child, lines) for child in inner])
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            part.body = [self._statement(child, lines) for child in part.body]
        return node

    def _has_gpu(self, node: ast.With) -> bool:
        return any(self._is_ours(item.context_expr) for item in node.items)

    def _is_ours(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = node.func
        return isinstance(name, ast.Name) and self._is_gpu(name.id)

    def _call(self, node: ast.With, lines: list[str]) -> ast.stmt:
        if len(node.items) > 1 or node.items[0].optional_vars is not None:
            raise _rejected("with gpu(): stands alone: no second item and no 'as NAME'.")
        crossing = next(_crossings(node.body), None)
        if crossing is not None:
            raise _rejected(
                f"line {crossing[1]}: {crossing[0]} cannot cross the border of with gpu():. "
                f"{ALTERNATIVES}"
            )
        call = node.items[0].context_expr
        assert isinstance(call, ast.Call)
        hook = ast.Call(
            func=ast.Name(id=HOOK, ctx=ast.Load()),
            args=[ast.Constant(_block_text(node, lines)), *call.args],
            keywords=call.keywords,
        )
        return ast.copy_location(ast.Expr(value=hook), node)


def _rejected(sentence: str) -> Exception:
    """Return IPython's rejection of a cell, shown as a sentence instead of frames of ours."""
    from IPython.core.error import InputRejected

    error: Exception = InputRejected(sentence)
    error.__dict__["_render_traceback_"] = lambda: [f"InputRejected: {sentence}"]
    return error


def _block_text(node: ast.With, lines: list[str]) -> str:
    """Return the block as a cell of its own, on the lines that it has in the typed cell."""
    first, last = node.lineno, node.end_lineno or node.lineno
    text = ["#"] * (first - 1) + lines[first - 1 : last]
    if node.col_offset:
        text[first - 2] = "if True:"  # a nested block has the line of its parent above it
    found = "\n".join(text) + "\n"
    if _same(found, node):
        return found
    # Another magic (%%time) transformed a tree of its own: its text is not the cell's.
    return "#\n" * (first - 1) + ast.unparse(node) + "\n"


def _same(text: str, node: ast.With) -> bool:
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        return False
    if node.col_offset and isinstance(statement, ast.If):
        statement = statement.body[0]
    return ast.dump(statement) == ast.dump(node)


def _crossings(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield ``(keyword, line)`` of what would leave the block other than by its end."""
    for statement in body:
        yield from _crossing(statement, in_loop=False)


def _crossing(node: ast.AST, *, in_loop: bool) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    if isinstance(node, ast.Break | ast.Continue) and not in_loop:
        yield type(node).__name__.lower(), node.lineno
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        yield "await", node.lineno
    if isinstance(node, ast.Yield | ast.YieldFrom):
        yield "yield", node.lineno
    in_loop = in_loop or isinstance(node, ast.For | ast.While)
    for child in ast.iter_child_nodes(node):
        yield from _crossing(child, in_loop=in_loop)
