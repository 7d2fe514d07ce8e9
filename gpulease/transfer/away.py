"""The companion's half: serves home's requests on a thread of its own, between the cells."""

from __future__ import annotations

import os
import pickle
import queue
import secrets
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpulease.channel.keys import Endpoint
from gpulease.errors import GPULeaseError
from gpulease.sides.last_error import follow, last_error
from gpulease.sides.state.process_state import ProcessState
from gpulease.sides.threads import UserThreads
from gpulease.sizes import size_text
from gpulease.wire.connection import Wire
from gpulease.wire.message import Message

from . import pieces, shipping
from .api import (
    LAST_ERROR,
    Absent,
    DrainReport,
    Parcel,
    Place,
    Receiver,
    StageError,
    TransferSettings,
    VariableStatus,
)
from .imports import import_ahead
from .messages import abandoned, unforeseen
from .reached import Reached
from .roots import Hidden, is_variable
from .side import Side
from .structure import ShowingSide

#: Requests that are given up where a cell runs.
_WHILE_NOTHING_RUNS = frozenset(("pack", "lacking", "result", "unpark", "import", "structure"))


class _AbandonedError(Exception):
    """What was imported ahead was given up because a cell began to run."""


class AwaySide:
    """The companion's half; it has its own thread and never blocks the companion's main thread."""

    def __init__(
        self,
        namespace: dict[str, Any],
        *,
        hidden: Hidden = (),
        settings: TransferSettings | None = None,
    ) -> None:
        self.settings = settings or TransferSettings()
        self.session = secrets.token_hex(8)
        self._results: dict[int, Any] = {}
        self.side = ShowingSide("a", namespace, hidden, self._results)
        self.state = ProcessState()
        self._threads = UserThreads(namespace)
        self._reached = Reached(lambda: bool(self._threads.alive()))
        self._idle = threading.Condition(threading.RLock())
        self._running = 0
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        #: What was packed last and is not acknowledged.
        self._packed: tuple[str, Parcel, bytes] | None = None
        self._wire: Wire | None = None
        self._worker = threading.Thread(target=self._work, name="gpulease-transfer", daemon=True)
        self._handlers: dict[str, Callable[[Message], tuple[dict[str, Any], list[Any]]]] = {
            "hello": self._hello, "take": self._take, "pack": self._pack, "ack": self._ack,
            "lacking": self._lacking, "result": self._result, "drop": self._drop,
            "structure": self._structure,
            "unpark": self._unpark, "import": self._import,
        }  # fmt: skip

    # ---- called by the companion's kernel

    def start(
        self, client_key: str, *, host: str = "127.0.0.1", port: int = 0,
        bulk_port: int | None = None,
    ) -> Endpoint:  # fmt: skip
        """Listen for the home kernel that proves ``client_key``; port 0: any."""
        self._wire = Wire(self._enqueue, memory=pieces.memory_for)
        endpoint = self._wire.listen(client_key, host, port, bulk_port)
        self._worker.start()
        return endpoint

    def cell_started(self, source: str) -> None:
        """Nothing of the namespace is read until the cell has ended."""
        with self._idle:
            self._running += 1
            if self._wire is not None:
                self._wire.withdraw()
            self.state.settle()
            self._reached.cell_begins(source)
            self.state.cell_begins(source)

    def cell_ended(self, execution_count: int | None, result: Any) -> None:
        """Keep what the cell came to."""
        with self._idle:
            self.state.look()
            self._running = max(0, self._running - 1)
            if execution_count is not None and result is not None:
                self._keep(execution_count, result)
            if not self._running:
                self._idle.notify_all()

    def _keep(self, count: int, result: Any) -> None:
        kept = self._results
        if len(kept) >= self.settings.results:
            for old in sorted(kept)[: max(2, len(kept) // 5)]:
                del kept[old]
        kept[count] = result

    def thread_ids(self) -> frozenset[int]:
        """Return native ids of the transfer's own threads."""
        threads = [self._worker, *(self._wire.threads if self._wire is not None else [])]
        return frozenset(each.native_id for each in threads if each.native_id is not None)

    def park(self, path: str, limit: int | None = None) -> DrainReport:
        """Write what home does not have to ``path``."""
        with self._idle:
            parked, refused = write(self.side, path, limit)
        blockers = tuple(
            VariableStatus(name, "", Place.LOST, None, False, why) for name, why in refused.items()
        )
        return DrainReport(not blockers, blockers, parked=len(parked))

    def close(self) -> None:
        """End the threads."""
        self._requests.put(None)
        if self._wire is not None:
            self._wire.close()

    # ---- the wire's thread

    def _enqueue(self, message: Message) -> None:
        if message.kind == "cancel":
            self._cancelled.add(int(message.body["number"]))
        else:
            self._requests.put(message)

    # ---- the worker's thread

    def _work(self) -> None:
        while self._handle(self._requests.get()):
            pass  # no message is kept here: its memory may be a value's that the user deletes

    def _handle(self, message: Message | None) -> bool:
        if message is None:
            return False
        wire = self._wire
        assert wire is not None
        try:
            with self._idle:
                body, blobs = self._answer(message)
                wire.reply(message, body, blobs)
        except GPULeaseError as error:
            wire.refuse(message, error)
        except StageError as error:
            wire.refuse(message, GPULeaseError("cannot_move", f"{error}."))
        except Exception:  # noqa: BLE001 - it is logged, and home must not wait for ever
            wire.refuse(message, unforeseen(f"transfer request {message.kind}"))
        return True

    def _answer(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        if message.number in self._cancelled:
            self._cancelled.discard(message.number)
            raise abandoned()
        if self._running and message.kind in _WHILE_NOTHING_RUNS:
            raise abandoned()
        while self._running:
            self._idle.wait()
        return self._handlers[message.kind](message)

    def _hello(self, _message: Message) -> tuple[dict[str, Any], list[Any]]:
        self.side.forget_peer()
        self.state.forget_peer()
        self._packed = None
        self._cancelled.clear()  # another wire counts its messages from one
        return {"session": self.session, "park_limit": self.settings.park_limit}, []

    def _take(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        parcel, state = shipping.decode(message.blobs)
        self._packed = None
        self.state.prepare(state)
        before = dict(self.side.ns)
        untaken = shipping.take(self.side, parcel)
        if state:
            self.state.apply(state)
        follow(before, self.side.ns)
        del before
        held = self.side.replaced.still_held({})
        return {"away": self.side.away(), "untaken": sorted(untaken), "kept": held}, []

    def _pack(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        body = message.body
        receiver = Receiver(body["room"], frozenset(body["holds"]))
        options = {key: body[key] for key in ("hand_over", "small")}
        parcel = self._packed_of(body["needed"], receiver=receiver, **options)
        state = self.state.capture() if body["hand_over"] else b""
        return self._offer(parcel, state)

    def _packed_of(self, needed: Collection[str] | None, **options: Any) -> Parcel:
        reached = self._reached.take()
        try:
            return self.side.pack(needed, reached=reached, **options)
        except BaseException:
            self._reached.anything()
            raise

    def _offer(self, parcel: Parcel, state: bytes) -> tuple[dict[str, Any], list[Any]]:
        number = secrets.token_hex(8)
        body, blobs = shipping.encode(parcel, state)
        for component in parcel.components:  # the wire has them as long as it needs them
            component.stream, component.buffers = b"", []
        self._packed = number, parcel, state
        return {**body, "number": number, "threads": bool(self._threads.alive())}, blobs

    def _ack(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        if self._packed is not None and self._packed[0] == message.body["number"]:
            _, parcel, state = self._packed
            shipping.forget(parcel, message.body["untaken"])
            self.side.acknowledge(parcel)
            if state:
                self.state.agreed(state)
            self._packed = None
        return {}, []

    def _lacking(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        return {"names": sorted(self.side.lacking(message.body["names"]))}, []

    def _result(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Pack a result that home has not got, or the last error."""
        count = int(message.body["cell"])
        if count == LAST_ERROR:
            ns = self.side.ns
            error = last_error({name: ns[name] for name in self.side.names() if name in ns})
            if error is not None:
                self._results[count] = error
        if count not in self._results:
            return {"known": False}, []
        name = f"Out[{count}]"
        try:
            parcel = self._packed_of({name}, hand_over=False)
        finally:
            self._results.pop(LAST_ERROR, None)
        body, blobs = self._offer(parcel, b"")
        return {**body, "known": True}, blobs

    def _structure(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        return shipping.encode(self.side.pack_structure(message.body["name"]), b"")

    def _drop(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        for name in message.body["names"]:
            self.side.ns.pop(name, None)
        return {}, []

    def _unpark(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        away, failed = read(self.side, message.body["path"])
        return {"away": away, "failed": failed}, []

    def _import(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        def check() -> None:
            if message.number in self._cancelled:
                raise _AbandonedError

        with suppress(_AbandonedError):
            import_ahead(self.state, message.body["names"], check)
        return {}, []


def write(side: Side, path: str, limit: int | None) -> tuple[list[str], dict[str, str]]:
    """Write what the other side lacks; return the names that are in the file, and why not others.

    All that these names need goes with them, because the next reader has nothing.
    """
    changed = {root[2:] for roots in side.changed() for root in roots if root[0] == "n"}
    names = {name for name in changed if is_variable(name)}
    side.forget_peer()
    parcel = side.pack(names, hand_over=False)
    refused = {n: each.reason for n, each in parcel.away.items() if not each.can_come}
    refused |= {name: f"It is {words}." for name, words in parcel.stays.items()}
    room, kept = limit, []
    for component in list(parcel.components):
        size = len(component.stream) + sum(each.raw().nbytes for each in component.buffers)
        if component.names and refused.keys() >= set(component.names):
            parcel.components.remove(component)
        elif room is not None and component.names and size > room:
            why = f"It has {size_text(size)}; {size_text(max(0, room))} more may be parked."
            refused.update(dict.fromkeys(component.names, why))
            parcel.components.remove(component)
        else:
            room = None if room is None else room - size
            kept += component.names
    target = Path(path)
    if not kept:
        target.unlink(missing_ok=True)  # what lies there is older than what is left out
        return [], refused
    partial = target.with_name(target.name + ".part")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            pickle.dump(parcel, file, protocol=5)
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        raise
    return kept, refused


def read(side: Side, path: str) -> tuple[dict[str, Absent], dict[str, str]]:
    """Take what was parked; return which of it is here now, and why other names are not."""
    try:
        with Path(path).open("rb") as file:
            parcel = pickle.load(file)
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        raise GPULeaseError(
            "parked_unreadable",
            f"The parked variables cannot be read ({type(error).__name__}).",
        ) from error
    finally:
        with suppress(OSError):
            Path(path).unlink()  # read again later it would be an old value
    parcel.away.clear()
    names = {name for component in parcel.components for name in component.names}
    shipping.take(side, parcel)
    failed = {name: each.reason for name, each in parcel.away.items()}
    side.forget_peer()
    found = {
        name: Absent("it was parked", True, type(side.ns[name]).__name__)
        for name in names
        if name in side.ns
    }
    return found, failed
