"""The companion's half of the transfer: serves the home side's requests beside the user's cells.

Owns one worker thread that surveys, packs and commits while no user code runs here, and gives up
at once when some starts.  It decides nothing: the home side says when a switch happens.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gpulease.channel.keys import Endpoint
from gpulease.errors import GPULeaseError
from gpulease.sides.threads import UserThreads
from gpulease.transfer.values.acknowledgement import acknowledge
from gpulease.transfer.values.collector import collector_waits
from gpulease.transfer.values.given_up import quietly
from gpulease.transfer.values.groups import AbandonedError, name_root, names_of
from gpulease.transfer.values.kinds import finalizers
from gpulease.transfer.values.packing.shipment import Incoming, Outcome, Shipment
from gpulease.transfer.values.side import Hidden, Side
from gpulease.transfer_next.api import DrainReport, Place, TransferSettings, VariableStatus
from gpulease.transfer_next.imports import import_ahead
from gpulease.transfer_next.messages import abandoned, internal
from gpulease.wire.connection import Wire
from gpulease.wire.message import Message

from .adrift import gone_names, is_unchanged
from .expected import NOTHING_NEW, Expected, asked_early
from .park import take_parked, write_parked
from .planning import Wanted, plan
from .results import Results
from .room import explain_no_room
from .structure import structure_of
from .touched import near_names, touched_names

log = logging.getLogger(__name__)


class AwaySide:
    """See ``api.Away``.  ``namespace`` is the companion's user namespace."""

    def __init__(
        self,
        namespace: dict[str, Any],
        *,
        hidden: Hidden = (),
        settings: TransferSettings | None = None,
    ) -> None:
        self.side = Side("a", namespace, hidden, settings or TransferSettings())
        self.session = secrets.token_hex(8)
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._running = 0
        self._abandon = threading.Event()
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._expected = Expected(self._requests.put)
        self._offered: dict[str, Shipment] = {}
        self._announced: set[str] = set()
        self._results = Results(self.side)
        self._cell: int | None = None
        self._generation = 0
        self._verified = -1
        self._wire: Wire | None = None
        self._worker = threading.Thread(target=self._work, name="gpulease-transfer", daemon=True)
        self._threads = UserThreads(namespace)
        self.side.runs_beside = lambda: bool(self._threads.alive())
        self._handlers: dict[str, Callable[[Message], None]] = {
            "hello": self._hello,
            "commit": self._commit,
            "collect": self._collect,
            "fetch": self._fetch,
            "confirm": self._confirm,
            "ack": self._ack,
            "result": self._result,
            "drop": self._drop,
            "unpark": self._unpark,
            "import": self._import,
            "structure": self._structure,
        }

    # ---- called by the companion kernel

    def start(
        self,
        client_key: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bulk_port: int | None = None,
    ) -> Endpoint:
        """Listen for the home kernel that proves ``client_key``; port 0 lets the system choose."""
        self._wire = Wire(self._enqueue)
        endpoint = self._wire.listen(client_key, host, port, bulk_port)
        finalizers.leave_to_the_other_side()
        self._worker.start()
        return endpoint

    def cell_started(self, source: str) -> None:
        """Give up background passes; nothing of this namespace is read until it has ended."""
        self._abandon.set()
        with self._lock:
            self._running += 1
            self.side.noted = None  # it holds values
            if self._wire is not None:
                self._wire.withdraw()
            self.side.state.settle()
            self.side.state.cell_begins(source, self.side.ns)

    def expect(self, said: Mapping[str, Any]) -> None:
        """Home wants what the coming cell changes, as soon as it has ended."""
        self._expected.add(said)

    def cell_ended(self, execution_count: int | None, result: Any) -> int | None:
        """User code ended: from now on everything here is unverified.

        Returns what of ``expect`` is answered by saying so: nothing of it can be new.
        """
        told = None
        with self._lock:
            self.side.state.cell_ended()
            self.side.state.look()
            self._running = max(0, self._running - 1)
            self._generation += 1
            self.side.noted = {}
            if execution_count is not None:
                self._cell = execution_count
                if result is not None:
                    self._results.keep(execution_count, result)
                told = self._expected.ended(self._nothing_new)
            if not self._running:
                self._abandon.clear()
                self._idle.notify_all()
        return told

    def explain_error(self, error: BaseException) -> str:
        """See ``api.Away``; on the main thread, while the cell that failed is still running."""
        with self._lock:
            return explain_no_room(self.side, error)

    def thread_ids(self) -> frozenset[int]:
        """Return native ids of transfer's own threads."""
        threads = [self._worker, *(self._wire.threads if self._wire is not None else [])]
        found = (self.side.registry.borrowed.thread_id, *(t.native_id for t in threads))
        return frozenset(number for number in found if number is not None)

    def park(self, path: str, seconds: float, limit: int | None = None) -> DrainReport:
        """Write what is not home to ``path``, within about ``seconds`` and ``limit`` bytes."""
        deadline = time.monotonic() + seconds
        with self._lock:
            away = self._away_names()
            left, blockers = write_parked(self.side, away, path, deadline, limit)
        statuses = tuple(
            VariableStatus(name, "", Place.LOST, None, False, why) for name, why in blockers
        )
        kept = len(away) - len(left) - len(blockers)
        late = tuple(
            VariableStatus(name, "", Place.LOST, None, False, "It could not be parked in time.")
            for name in left
        )
        return DrainReport(not left and not statuses, statuses + late, parked=kept)

    def close(self) -> None:
        """End both threads."""
        self._requests.put(None)
        if self._wire is not None:
            self._wire.close()

    # ---- the wire's thread

    def _enqueue(self, message: Message) -> None:
        if message.kind == "cancel":
            self._cancelled.add(int(message.body["number"]))
        elif message.kind == "due":
            if self._expected.due(message.body):
                self._home.reply(Message(int(message.body["number"]), "collect", {}), NOTHING_NEW)
            self._home.reply(message, {})
        else:
            self._requests.put(message)

    def _nothing_new(self, message: Message) -> bool:
        """Say whether a cell that touched these can have changed nothing (main thread, locked).

        No name, no state of the process: told without a look into any value.
        """
        touched = message.body["touched"]
        return (
            touched is not None
            and not asked_early(message, self._offered)
            and message.number not in self._cancelled
            and self._running == 0
            and not near_names(self.side, touched, self._announced)
            and not self._threads.alive()
            and self._rest_is_known()
        )

    def _rest_is_known(self) -> bool:
        """Say whether home knows of every deletion here and of the process's state."""
        self.side.supersede()
        return not gone_names(self.side) and not self.side.state.capture()

    # ---- the worker's thread

    def _work(self) -> None:
        while self._handle(self._requests.get()):
            pass  # no message is kept here: its memory may be a value's that the user deletes

    def _handle(self, message: Message | None) -> bool:
        if message is None:
            return False
        if message.number in self._cancelled:
            self._cancelled.discard(message.number)
            self._home.refuse(message, abandoned())
            return True
        wire = self._home
        try:
            with collector_waits(), quietly():
                self._handlers[message.kind](message)
        except GPULeaseError as error:
            wire.refuse(message, error)
        except AbandonedError:
            wire.refuse(message, abandoned())
        except Exception:  # a value's own code may raise anything, and home must not wait for ever
            reference = secrets.token_hex(4)
            log.exception("transfer request %s failed (reference %s)", message.kind, reference)
            wire.refuse(message, internal(reference))
        return True

    @property
    def _home(self) -> Wire:
        assert self._wire is not None
        return self._wire

    def _check(self, message: Message) -> Callable[[], None]:
        def check() -> None:
            if self._abandon.is_set() or message.number in self._cancelled:
                raise AbandonedError

        return check

    def _hello(self, message: Message) -> None:
        with self._lock:
            self._expected.forget_early()
            if not message.body["known"]:
                self.side.forget_peer()
                self._offered.clear()
                self._cancelled.clear()  # another wire counts its messages anew
                self._expected.clear()
        self._home.reply(
            message, {"session": self.session, "park_limit": self.side.settings.park_limit}
        )

    def _commit(self, message: Message) -> None:
        incoming = Incoming.decode(message.body, message.blobs)
        with self._lock:
            while self._running:
                self._idle.wait()
            if message.number in self._cancelled:
                self._cancelled.discard(message.number)
                self._home.refuse(message, abandoned())
                return
            outcome = self.side.receive(incoming)
            self._announced -= {n for g in incoming.groups for n in names_of(g.roots)}
        self._home.reply(message, outcome.to_json())

    def _collect(self, message: Message) -> None:
        body = message.body
        check = self._check(message)
        with self._lock:
            if self._expected.kept_early(message, self._offered):
                return
            self._must_be_idle()
            alive = self._threads.alive()
            if self._verified == self._generation and not alive and body["touched"] is None:
                self._home.reply(message, NOTHING_NEW)
                return
            names, survey = touched_names(self.side, body["touched"], self._announced, check)
            if not alive and names == [] and self._rest_is_known():
                self._home.reply(message, NOTHING_NEW)
                return
            shipment = plan(
                self.side, Wanted(soft=frozenset(body.get("read", ()))), names=names,
                survey=survey, cell=self._cell, check=check, eager=bool(body.get("eager", True)),
                room=body.get("room"),
            )  # fmt: skip
            del survey  # it holds every value that it found
            self._announced = (self._announced - set(shipment.names)) | set(shipment.absent)
            self._offer(message, shipment, {"threads": alive, "generation": self._generation})

    def _must_be_idle(self) -> None:
        if self._running:
            raise AbandonedError

    def _fetch(self, message: Message) -> None:
        names = frozenset(message.body["names"])
        with self._lock:
            self._must_be_idle()
            wanted = Wanted(strict=names) if message.body["strict"] else Wanted(soft=names)
            check = self._check(message)
            shipment = plan(self.side, wanted, cell=self._cell, fetch=True, check=check)
            extra = {"threads": self._threads.alive(), "generation": self._generation}
            self._offer(message, shipment, extra)

    def _structure(self, message: Message) -> None:
        with self._lock:
            self._must_be_idle()
            shipment = structure_of(self.side, str(message.body["name"]), self._check(message))
            header, blobs = shipment.encode()
        self._home.reply(message, header, blobs)

    def _offer(self, message: Message, shipment: Shipment, extra: dict[str, Any]) -> None:
        number = secrets.token_hex(8)
        self._offered[number] = shipment.emptied()
        while len(self._offered) > 64:  # offers whose asker went away
            del self._offered[next(iter(self._offered))]
        header, blobs = shipment.encode()
        header |= extra | {"shipment": number}
        self._home.reply(message, header, blobs, shipment.found_there)

    def _confirm(self, message: Message) -> None:
        """Say whether what was offered is still what is here (a user thread may have written)."""
        with self._lock:
            shipment = self._offered.get(message.body["shipment"])
            same = (
                shipment is not None
                and not self._running
                and all(is_unchanged(self.side, item.packed) for item in shipment.items)
            )
        self._home.reply(message, {"same": same})

    def _ack(self, message: Message) -> None:
        with self._lock:
            shipment = self._offered.pop(message.body["shipment"], None)
            if shipment is not None:
                outcome = Outcome.from_json(message.body["outcome"])
                acknowledge(self.side, shipment, outcome)
                complete = shipment.complete and outcome.ok and not outcome.culprits
                if complete and message.body.get("generation") == self._generation:
                    self._verified = self._generation
            self._expected.acknowledged()
        self._home.reply(message, {})

    def _result(self, message: Message) -> None:
        count = int(message.body["cell"])
        with self._lock:
            self._must_be_idle()
            value = self._results.find(count)
            if value is None:
                self._home.reply(message, {"known": False})
            elif (name := self._results.name_of(value)) is not None:
                self._home.reply(message, {"known": True, "name": name})
            else:
                found = self._results.shipment(count, value)
                self._offer(message, found, {"known": True, "name": ""})

    def _drop(self, message: Message) -> None:
        """Home keeps its own value of these names: ours are no longer the newest."""
        with self._lock:
            self._must_be_idle()
            for name in message.body["names"]:
                self.side.ns.pop(name, None)
                self.side.withheld.pop(name, None)
                self.side.ledger.differ([name_root(name)])
            self.side.noted = None
        self._home.reply(message, {})

    def _unpark(self, message: Message) -> None:
        with self._lock:
            self._must_be_idle()
            taken = take_parked(self.side, message.body["path"])
        self._home.reply(message, taken)

    def _import(self, message: Message) -> None:
        with self._lock, suppress(AbandonedError):  # a cell that starts waits for one package
            self._must_be_idle()
            import_ahead(self.side.state, message.body["names"], self._check(message))
        self._home.reply(message, {})

    def _away_names(self) -> list[str]:
        base = self.side.ledger.base
        return [n for n in self.side.names() if name_root(n) not in base]
