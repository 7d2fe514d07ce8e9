"""Runs GPU cells one after the other, from the request for a lease to the values that return.

Blocks and decorated functions are GPU cells too.  Main thread only.
"""

from __future__ import annotations

import linecache
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from gpulease.errors import GPULeaseError
from gpulease.kernel.gate import Gate
from gpulease.kernel.notices import stopped_word
from gpulease.kernel.options import CellOptions, parse_duration
from gpulease.kernel.outputs import CARRIER, inputs_and_magics
from gpulease.kernel.parts import Parts
from gpulease.kernel.relay import QueueProgress, RemoteError, say
from gpulease.kernel.unattended import GPUReclaimed, GPUTimeOver, told_apart
from gpulease.protocol.control import EXECUTE_METADATA, CellText, ReplyMetadata
from gpulease.sides.sources import learn

if TYPE_CHECKING:
    from gpulease.kernel.attach import Attachment
    from gpulease.transfer.api import SwitchReport


class CellCost(TypedDict):
    """A GPU cell that ended, as a front end marks it; seconds, bytes, ISO 8601 in UTC."""

    cell_id: str  # the notebook's id of the cell; "" where the front end names none
    gpu_class: str
    device: str
    simulated: bool
    seconds: float  # that the cell itself took
    moved_bytes: int  # both ways
    moved_seconds: float
    ended: str


#: The reason of a lease that has lasted as long as it may.
EXPIRED = "expired"
#: What an interrupt of gpulease's own raises in a cell, and in one that awaits.
INTERRUPTED = ("KeyboardInterrupt", "CancelledError")


class GPUCells:
    """Runs cells in the companion of one kernel.

    Attributes:
        failed: the last cell's error was the companion's; ``%tb`` and ``%debug`` are about it.
        cost: the last cell's run, for front ends: where, how long, what moved for it.
    """

    def __init__(self, parts: Parts, gate: Gate) -> None:
        self._parts = parts
        self._gate = gate
        self._sources = Sources(parts.shell)
        self.failed = False
        self._debugger_told = False
        self.cost: CellCost | dict[str, Any] = {}

    def run(self, source: str, options: CellOptions, *, silent: bool = False) -> None:
        """Run ``source`` in the companion, with everything a cell shows and asks.

        Raises:
            GPULeaseError: no GPU, or a value that cannot travel.
            BaseException: what the cell raised, as a ``RemoteError`` of the same name.
        """
        parts = self._parts
        if threading.current_thread() is not threading.main_thread():
            raise GPULeaseError(
                "not_main_thread", "GPU cells run on the kernel's main thread only."
            )
        parts.enter()
        try:
            with told_apart(unattended=parts.unattended):
                self._run(source, options, silent=silent)
        finally:
            parts.alone = False
            parts.leave()

    def _run(self, source: str, options: CellOptions, *, silent: bool) -> None:
        parts = self._parts
        parts.inbox.run_ready()  # what happened to the lease since the last cell
        parts.link.notices.withdraw()  # this cell uses it
        parts.say_notes()
        parts.miss_nothing()
        parts.waiter.ensure(options)
        parts.say_notes()
        self._gate.fresh_companion()
        self._mention_debugger()
        if parts.by_person:
            parts.note.next_cell(parts.kernel.get_parent("shell"))
        with parts.link.noticing_the_dead(), self._under_way():
            self._run_attached(source, silent=silent)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """A cell runs, or its own values move: to the supervisor that is use, not idleness."""
        attachment = self._parts.link.attachment
        if attachment is None:
            yield
            return
        attachment.control.cell = True
        try:
            yield
        finally:
            attachment.control.cell = False

    def _run_attached(self, source: str, *, silent: bool) -> None:
        parts = self._parts
        count = self._count()
        progress = QueueProgress(parts.shell, lambda: parts.alone)
        parts.link.cell = str(count)
        values, lines = parts.results.for_away(source)
        lines += inputs_and_magics(parts.shell, source, values)
        lines += parts.last_error.for_away(source, values, parts.link.attachment)
        program = "\n".join(lines)
        if program:
            parts.shell.user_ns[CARRIER] = values
        try:
            self._say(parts.files.before(progress.show))
            needed = f"{CARRIER}\n{source}" if program else source
            report = parts.home.before_gpu_cell(needed, progress=parts.progress_callback(progress))
        finally:
            progress.clear()
            if program:
                del parts.shell.user_ns[CARRIER]
        if program:
            self._run_silently(f"{program}\ndel {CARRIER}")
            parts.last_error.told()
        parts.alone = False  # from here on the cell's own output counts
        self._sources.remember(source, count, parts.link.attachment)
        cells = self._sources.untold(parts.link.attachment)
        began = time.monotonic()
        try:
            reply = parts.executor.run_cell(source, count, silent=silent, cells=cells)
        except GPULeaseError:
            self.failed = False
            raise
        said: ReplyMetadata | dict[str, Any] = reply["metadata"].get(EXECUTE_METADATA) or {}
        seconds = time.monotonic() - began
        after = parts.home.after_gpu_cell(count)
        parts.say_report(report, after)
        self._gate.made_away(said.get("magics", ()))
        self._bring_files()
        if missed := self._gate.missed_variables(source):
            self._say([missed])
        self.cost = self._cost(seconds, report, after)
        self._finish(reply["content"])

    def _cost(self, seconds: float, *switches: SwitchReport) -> CellCost | dict[str, Any]:
        attachment = self._parts.link.attachment
        if attachment is None:
            return {}
        # Lab names the cell in its request; other front ends do not, and mark nothing.
        metadata = self._parts.kernel.get_parent("shell").get("metadata", {})
        devices = attachment.view["devices"]
        return {
            "cell_id": str(metadata.get("cellId") or ""),
            "gpu_class": attachment.view["gpu_class"],
            "device": devices[0]["name"] if devices else "",
            "simulated": attachment.view["simulated"],
            "seconds": round(seconds, 3),
            "moved_bytes": sum(switch.bytes for switch in switches),
            "moved_seconds": round(sum(switch.seconds for switch in switches), 3),
            "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def _bring_files(self) -> None:
        progress = QueueProgress(self._parts.shell)
        try:
            said = self._parts.files.after(progress.show)
        finally:
            progress.clear()
        self._say(said)

    def _say(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            say(self._parts.shell, sentence)

    def _mention_debugger(self) -> None:
        debugger = getattr(self._parts.kernel, "debugger", None)
        started = getattr(debugger, "is_started", False)
        if started and not self._debugger_told and self._parts.by_person:
            self._debugger_told = True
            self._parts.alone = False
            say(self._parts.shell, "Lab's debugger does not reach GPU cells; %debug does.")

    def _run_silently(self, code: str) -> None:
        reply = self._parts.executor.run_silently(code)
        if reply is None or reply.get("status") != "ok":
            raise GPULeaseError(
                "result_gone",
                "A result that this cell reads by _ or Out is not on the GPU any more.",
                next_step="Give the value a name where it is made, and use the name here.",
            )

    def _finish(self, reply: Mapping[str, Any]) -> None:
        parts = self._parts
        for payload in reply.get("payload") or ():
            parts.shell.payload_manager.write_payload(payload, single=False)
        extra = self._gate.explain_reply(reply)
        extra = extra or parts.files.explain(str(reply.get("ename", "")))
        error = parts.relay.error_of(reply, extra)
        self.failed = error is not None
        stopped, parts.link.stopped_by = parts.link.stopped_by, ""
        if error is None:
            return
        if stopped and reply.get("ename") in INTERRUPTED:
            over = stopped == EXPIRED
            raise (GPUTimeOver if over else GPUReclaimed)(
                "reclaimed",
                f"The GPU was taken back while this cell ran. {stopped_word(stopped)}",
                next_step="What the cell had computed is home; cut it into shorter ones, or write "
                "checkpoints."
                if over
                else "What the cell had computed is home; run it again to get a new lease.",
                status=410,
            ) from None
        if reply.get("status") == "error" and reply.get("ename") not in INTERRUPTED:
            with self._under_way():
                parts.last_error.raised(error)
        raise error

    def about_error(self, body: str) -> None:
        """Ask the companion about its last error, which stays the last error."""
        self.run(body, CellOptions(no_wait=True))
        self.failed = True

    def block(self, source: str, gpu_class: str | None = None, **options: Any) -> None:
        """Run a ``with gpu():`` block of the running home cell; then continue here."""
        parts = self._parts
        found = _block_options(gpu_class, options)
        self._run_inside(source, found)
        with self._under_way():
            parts.home.before_home_cell(self._gate.running)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``function`` on a GPU and return its result at home (``@gpu.run``)."""
        parts = self._parts
        name = "gpulease_call"
        namespace = parts.shell.user_ns
        namespace[name] = [function, args, kwargs, None]
        try:
            code = f"{name}[3] = {name}[0](*{name}[1], **{name}[2])"
            self._run_inside(code, CellOptions())
            with self._under_way():
                parts.home.before_home_cell(f"{name}\n{self._gate.running}")
            return namespace[name][3]
        finally:
            namespace.pop(name, None)

    def _run_inside(self, source: str, options: CellOptions) -> None:
        """Run a part of a home cell, which may catch what it raises: the very exception."""
        try:
            self.run(source, options)
        except BaseException as error:
            original = error.original if isinstance(error, RemoteError) else None
            # One that says more here than there stays as it is.
            if isinstance(original, Exception) and str(error) == str(original):
                raise original from None
            raise

    def _count(self) -> int:
        """Return the number of the running cell; IPython has counted it where a person typed it."""
        parts = self._parts
        return max(1, int(parts.shell.execution_count) - parts.by_person)


def _block_options(gpu_class: str | None, options: dict[str, Any]) -> CellOptions:
    known = {"count", "wait", "no_wait"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise GPULeaseError("bad_option", f"gpu() has no option {unknown[0]!r}.")
    if isinstance(options.get("wait"), str):
        options["wait"] = parse_duration(options["wait"])
    return CellOptions(gpu_class=gpu_class, **options)


KEPT = 500
#: At most this many characters of cells go with one GPU cell; the newest come first.
TOLD = 500_000


class Sources:
    """Remembers the text of GPU cells and home's cells, and says which the companion lacks.

    ``inspect.getsource`` and tracebacks so find a function's cell also where the function was not
    defined.  GPU cells are registered under the file names that the companion compiled them under.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._away: OrderedDict[str, None] = OrderedDict()
        self._told: set[str] = set()
        self._told_to: object = None

    def remember(self, source: str, count: int, attachment: Attachment | None) -> None:
        """Call before ``source`` runs as cell ``count`` in the companion of ``attachment``."""
        if attachment is None:
            return
        self._meet(attachment)
        compiler: Any = import_module("ipykernel.compiler")
        digest = compiler.murmur2_x86(source, compiler.get_tmp_hash_seed())
        folder = Path(tempfile.gettempdir()) / f"ipykernel_{attachment.opened['pid']}"
        name = str(folder / f"{digest}.py")
        learn(self._shell, name, count, source)
        self._told.add(name)
        self._away[name] = None
        self._away.move_to_end(name)
        while len(self._away) > KEPT:
            old, _ = self._away.popitem(last=False)
            linecache.cache.pop(old, None)

    def _meet(self, companion: object) -> None:
        """Start over with another companion."""
        if companion is not self._told_to:
            self._told_to = companion
            self._told.clear()

    def untold(self, companion: object) -> list[CellText]:
        """Return the cells of home, and of companions before this one, that ``companion`` has not
        been told of; they count as told.
        """
        self._meet(companion)
        found: list[CellText] = []
        size = 0
        for name, count in reversed(self._shell.compile._filename_map.items()):  # noqa: SLF001
            if name in self._told:
                continue
            self._told.add(name)
            text = "".join(linecache.getlines(name))
            size += len(text)
            if size <= TOLD and not text.startswith("__import__('gpulease.kernel'"):
                found.append({"name": name, "execution_count": count, "text": text})
        return found
