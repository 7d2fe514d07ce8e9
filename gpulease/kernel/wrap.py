"""The way into IPython: how a typed cell reaches gpulease's route and gate.

The shell's ``run_cell_async`` and ``should_run_async`` are wrapped, its history keeps what was
typed, and errors explain themselves.  ``remove`` undoes everything.  There is no input transformer:
it would break ``is_complete``, history and every other magic.
"""

from __future__ import annotations

import asyncio
import functools
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from gpulease.errors import GPULeaseError
from gpulease.kernel.relay import RemoteError, remember_original, was_shown
from gpulease.kernel.route import Route, Side, route
from gpulease.sides.last_error import current

_SHIM = "__import__('gpulease.kernel', fromlist=['perform']).perform({})"
TICK_SECONDS = 0.1
Action = Callable[[], None]


class Cells(Protocol):
    """What the wrapper asks of the session; all on the main thread."""

    def is_sticky(self, cell: str) -> bool:
        """Called for each cell of a person: whether it goes away, where it does not say so."""

    def run_routed(self, way: Route, typed: str, *, silent: bool) -> None:
        """Called inside the cell that goes away; raises what the cell shall raise."""

    def before_home(self, way: Route) -> None:
        """Called before a home cell; raises to refuse it."""

    def after_home(self, way: Route, *, failed: bool) -> None:
        """Called after a home cell."""

    def ran_beside(self) -> None:
        """Called on a subshell's thread, after a request that ran beside the cells."""

    def explain(self, name: str) -> str:
        """Called on a NameError: why the name is absent, or ``""``."""

    def goes_on(self) -> str | None:
        """Called when a home cell fails for want of a GPU: None where it goes on on one, and
        nothing is to be shown; else why not, or ``""``.
        """

    def as_remote(self, error: BaseException | None) -> BaseException | None:
        """Called with what is to be shown: what shows it in its place, as a rule ``error``."""

    def last_error_away(self) -> bool:
        """Called for ``%tb`` and ``%debug``: whether the last error was a GPU cell's."""


class _Texts(threading.local):
    """The texts of the cells that run, the innermost last: a subshell has its own."""

    def __init__(self) -> None:
        self.running: list[str] = []


class Wrapper:
    """Installs gpulease around one shell's cells."""

    def __init__(self, shell: Any, cells: Cells) -> None:
        self._shell = shell
        self._cells = cells
        self._actions: dict[int, tuple[Action, str]] = {}
        self._next = 0
        self._texts = _Texts()
        self._run_cell_async = shell.run_cell_async
        self._should_run_async = shell.should_run_async
        self._showtraceback = shell.showtraceback
        self._user_expressions = shell.user_expressions
        self._store_inputs = shell.history_manager.store_inputs

    @property
    def typed(self) -> str:
        """The text of the cell that runs on this thread, as transformed for Python."""
        return self._texts.running[-1] if self._texts.running else ""

    def install(self) -> None:
        """Put the wrappers in place."""
        shell = self._shell
        shell.run_cell_async = self.run_cell_async
        shell.should_run_async = self.should_run_async
        shell.showtraceback = self.showtraceback
        shell.user_expressions = self.user_expressions
        shell.history_manager.store_inputs = self.store_inputs

    def remove(self) -> None:
        """Take the wrappers away again."""
        for owner, name in (
            (self._shell, "run_cell_async"),
            (self._shell, "should_run_async"),
            (self._shell, "showtraceback"),
            (self._shell, "user_expressions"),
            (self._shell.history_manager, "store_inputs"),
        ):
            owner.__dict__.pop(name, None)

    def perform(self, number: int) -> None:
        """Run the action that stands in for a cell; called from the cell's replaced text."""
        action, _ = self._actions.pop(number)
        action()

    def should_run_async(self, raw_cell: str, **kwargs: Any) -> bool:
        """Routed cells run synchronously: the main thread waits on a queue."""
        way = self._route(raw_cell, silent=False)
        if way.side is Side.AWAY:
            return False
        if way.body != raw_cell and kwargs.get("preprocessing_exc_tuple") is None:
            kwargs["transformed_cell"] = self._shell.transform_cell(way.body)
        return bool(self._should_run_async(raw_cell, **kwargs))

    async def run_cell_async(
        self,
        raw_cell: str,
        store_history: bool = False,
        silent: bool = False,
        shell_futures: bool = True,
        *,
        transformed_cell: str | None = None,
        preprocessing_exc_tuple: Any = None,
        cell_id: Any = None,
        cell_meta: Any = None,
    ) -> Any:
        """Run the cell at home, or let its replaced text send it away."""
        way = self._route(raw_cell, silent=silent)
        typed, cell, failure = raw_cell, transformed_cell, preprocessing_exc_tuple
        at_home = False
        if way.side is Side.AWAY:
            failure = None
            typed = raw_cell if way.asked or transformed_cell is None else transformed_cell
            cell = self._stand_in(
                lambda: self._cells.run_routed(way, raw_cell, silent=silent), typed
            )
        else:
            if way.body != raw_cell:
                cell, failure = self._transform(way.body)
            try:
                # A subshell's request runs beside the cells, as a thread of the person's does.
                at_home = on_main_thread()
                if at_home:
                    with interruptible():
                        self._cells.before_home(way)
            except (GPULeaseError, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt) and not error.args:
                    error.args = ("Interrupted before the cell ran.",)
                at_home = False
                cell, failure = self._stand_in(functools.partial(_raise, error), typed), None
        self._texts.running.append(cell or raw_cell)
        result = None
        try:
            with ticking():
                result = await self._run_cell_async(
                    raw_cell,
                    store_history,
                    silent,
                    shell_futures,
                    transformed_cell=cell,
                    preprocessing_exc_tuple=failure,
                    cell_id=cell_id,
                    cell_meta=cell_meta,
                )
        finally:
            self._texts.running.pop()
            if at_home:
                self._cells.after_home(way, failed=result is None or not result.success)
            elif not on_main_thread():
                self._cells.ran_beside()
        return result

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """Keep what was typed in ``In`` and the history, not the text that stood in for it."""
        for number, (_, typed) in self._actions.items():
            if source.strip() == _SHIM.format(number):
                source = typed
        self._store_inputs(line_num, source, source_raw)

    def user_expressions(self, expressions: dict[str, str] | None) -> dict[str, Any]:
        """Evaluate what a front end asks beside a cell: at home, behind the gate of its cells."""
        if not expressions or not on_main_thread():
            return dict(self._user_expressions(expressions or {}))
        way = Route(Side.HOME, "\n".join(expressions.values()))
        try:
            with interruptible():
                self._cells.before_home(way)
        except (GPULeaseError, KeyboardInterrupt) as error:
            return dict.fromkeys(expressions, _refused(error))
        try:
            return dict(self._user_expressions(expressions))
        finally:
            self._cells.after_home(way, failed=False)

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """Let refusals read as sentences, and a NameError say where its name lives."""
        raised = exc_tuple[1] if exc_tuple else sys.exc_info()[1] or current()
        error = self._cells.as_remote(raised)
        if error is not None and error is not raised:
            exc_tuple = type(error), error, error.__traceback__
        if was_shown(error):
            remember_original(error)
            return
        if isinstance(error, GPULeaseError):
            show_as_sentence(error)
        elif isinstance(error, KeyboardInterrupt) and _waited(error):
            show_interrupt(error)
        elif type(error) is NameError and error.name and len(error.args) == 1:
            sentence = self._cells.explain(error.name)
            if sentence:
                error.args = (f"{error.args[0]}. {sentence}",)
        elif error is not None and is_about_no_gpu(error):
            why_not = self._cells.goes_on() if self._by_person() else ""
            if why_not is None:
                return
            error.add_note(no_gpu_here(why_not))
        self._showtraceback(exc_tuple, *args, **kwargs)
        remember_original(error)

    def _route(self, raw_cell: str, *, silent: bool) -> Route:
        """Return where a cell runs; a tool's goes away only where it says so itself."""
        if silent or not self._by_person():
            return route(raw_cell, sticky=False)
        way = route(raw_cell, sticky=self._cells.is_sticky(raw_cell))
        if way.about_error and self._cells.last_error_away():
            return replace(way, side=Side.AWAY)
        return way

    def _by_person(self) -> bool:
        return on_main_thread() and typed_by_person(self._shell.kernel.get_parent("shell"))

    def _stand_in(self, action: Action, typed: str) -> str:
        self._next += 1
        self._actions[self._next] = (action, typed)
        return _SHIM.format(self._next) + "\n"

    def _transform(self, body: str) -> tuple[str, Any]:
        try:
            return str(self._shell.transform_cell(body)), None
        except Exception:  # noqa: BLE001 - IPython shows it as the cell's error
            return body, sys.exc_info()


def show_as_sentence(error: GPULeaseError) -> None:
    """Make IPython show what the person can read and do, without frames of ours."""
    lines = [f"{type(error).__name__}: {error.sentence}"]
    if error.next_step:
        lines.append(error.next_step)
    error.__dict__["_render_traceback_"] = lambda: lines


def _waited(error: BaseException) -> bool:
    """Whether gpulease itself was interrupted, not code of the person's, here or on the GPU."""
    return not isinstance(error, RemoteError) and any(
        frame.f_globals.get("__name__", "").startswith("gpulease.kernel.")
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def show_interrupt(error: KeyboardInterrupt) -> None:
    """Make IPython show an interrupt of a waiting cell as one line, without frames of ours."""
    said = str(error) or "Interrupted."
    error.__dict__["_render_traceback_"] = lambda: [f"KeyboardInterrupt: {said}"]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt raise here, also where ipykernel turned it into a cancelled task."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    saved = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, saved)


@contextmanager
def ticking() -> Iterator[None]:
    """Turn the event loop while a cell awaits: an interrupt is only noticed when it turns."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    handle = loop.call_later(TICK_SECONDS, lambda: None)

    def tick() -> None:
        nonlocal handle
        handle = loop.call_later(TICK_SECONDS, tick)

    tick()
    try:
        yield
    finally:
        handle.cancel()


def _raise(error: BaseException) -> None:
    raise error


def _refused(error: BaseException) -> dict[str, Any]:
    """Return the answer to an expression that is not evaluated, as Jupyter's protocol has it."""
    ename, evalue = type(error).__name__, str(error)
    lines = [f"{ename}: {evalue}"]
    return {"status": "error", "ename": ename, "evalue": evalue, "traceback": lines}


#: What torch, JAX, CuPy, numba, triton and the CUDA runtime say.
_SAYS_SO = re.compile(
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|torch\.cuda\.is_available\(\) is False|Unknown backend:? '?(cuda|gpu)|no CUDA-capable device"
    r"|cudaErrorNoDevice|cudaErrorInsufficientDriver|CUDA driver version is insufficient"
    r"|Unable to initialize backend '(cuda|gpu)'|CUDA driver library cannot be found"
    r"|Error at driver init|0 active drivers"
)


def no_gpu_here(why_not: str) -> str:
    """Return what to do; ``why_not`` says why ``%gpu auto`` did not do it, "" where it is off."""
    told = f" %gpu auto did not take it there: {why_not}." if why_not else ""
    return (
        "Your notebook itself runs without a GPU. To use one, put %%gpu on the cell's first line."
        + told
    )


def is_about_no_gpu(error: BaseException) -> bool:
    """Say whether ``error`` is a framework's way of saying that this machine has no GPU."""
    return isinstance(error, RuntimeError | AssertionError) and bool(_SAYS_SO.search(str(error)))


def typed_by_person(request: Mapping[str, Any] | None) -> bool:
    """Return whether a request is a person's cell: one to execute that enters the history.

    Variable panes, debuggers and extensions of front ends run code of their own, and keep it out of
    the history: that is what tells them apart.
    """
    header = (request or {}).get("header") or {}
    if request is None or header.get("msg_type") != "execute_request":
        return False
    content = request["content"]
    silent = bool(content.get("silent"))
    return not silent and bool(content.get("store_history", True))


def on_main_thread() -> bool:
    """Return whether this is the thread of the notebook's cells, and none of a subshell."""
    return threading.current_thread() is threading.main_thread()
