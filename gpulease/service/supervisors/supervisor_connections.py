"""The service's end of the supervisor channels.

It knows which supervisor of which attempt is connected, which home kernels' keys it admitted, and
what it answered to the present drain.  The provider knows how a supervisor started and how it
proves itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from gpulease.errors import GPULeaseError
from gpulease.policy.model import Alert, Lease, LeaseState, TimeOuts
from gpulease.protocol.reports import KEYS_MAX, FromSupervisor
from gpulease.protocol.supervisor import ToSupervisor
from gpulease.providers.base import LinkState
from gpulease.service.supervisors.members import Members, Wire

log = logging.getLogger(__name__)

#: Seconds that a supervisor has to acknowledge a key.
ADMIT_SECONDS = 10.0
#: So many variables are named that could not go home; more help nobody.
_BLOCKERS = 50
_NAME, _SENTENCE = 200, 400
_STANDING = frozenset({LeaseState.ACTIVE, LeaseState.WARNED, LeaseState.DRAINING})


@dataclass
class _Line:
    """One lease's channel."""

    attempt: int
    wire: Wire | None
    address: str
    public_key: str
    pid: int | None
    account: int | None
    nodes: int = 1
    launch_key: str = ""  # of what it launches on the lease's other nodes
    admitted: dict[str, str] = field(default_factory=dict)  # client key -> kernel id
    learned: set[str] = field(default_factory=set)  # kernels of keys that we did not admit
    drained: str = ""
    blockers: tuple[tuple[str, str], ...] = ()
    parked: int = 0
    bye: str = ""
    told: ToSupervisor | None = None  # the warning or drain that it was told last
    told_end: ToSupervisor | None = None
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)


class SupervisorConnections:
    """All supervisor channels.

    Args:
        wake: called when something changed that a plan reads.
        grace: seconds that a lease's running cell has after its interrupt.
    """

    def __init__(
        self, wake: Callable[[], None], grace: Callable[[Lease], float] | None = None
    ) -> None:
        self._wake = wake
        self._grace = grace or (lambda _: TimeOuts().interrupt_grace)
        self._lines: dict[str, _Line] = {}
        self._members = Members()
        self._alerts: dict[str, Alert] = {}

    def connected(
        self, lease: Lease, wire: Wire, hello: FromSupervisor, account: int | None = None
    ) -> bool:
        """Take a supervisor that said hello and tell it where its lease stands.

        An attempt has one supervisor with one key.  A second one with another key has the lease's
        token from somewhere else: it is refused, for home kernels would send it what they hold.

        Args:
            lease: as it stands.
            wire: the supervisor's channel.
            hello: what it said.
            account: user id of its process, where this machine's kernel says it.
        """
        known = self._lines.get(lease.id)
        address, public_key = hello["address"], hello["public_key"]
        line = _Line(lease.attempt, wire, address, public_key, hello.get("pid"), account)
        line.launch_key = hello.get("launch_key", "")
        line.nodes = lease.nodes if line.launch_key else 1  # on one machine one is all there are
        # A service that was restarted learns the keys again: their kernels may end or be in use.
        line.admitted = dict(hello.get("keys") or {})
        line.learned = {kernel for kernel in line.admitted.values() if kernel}
        if known is not None and known.attempt == lease.attempt:
            if known.public_key != public_key:
                self._refuse(lease, account)
                return False
            if known.wire is not None and known.wire is not wire:
                known.wire.hang_up()
            line.learned -= set(known.admitted.values())
            line.learned |= known.learned
            line.admitted = _newest(known.admitted | line.admitted)
            line.drained, line.blockers = known.drained, known.blockers
            line.parked = known.parked
        self._lines[lease.id] = line
        line.told_end, line.told = lease_word(lease), self.standing(lease)
        wire.tell(line.told_end)
        if line.told is not None:
            wire.tell(line.told)
        if line.launch_key:
            self._members.launches(lease, line.launch_key)
            if self._members.complete(lease.id, lease.attempt, line.nodes):
                wire.tell(self._members.nodes(lease))
        self._wake()
        return True

    def joined(self, lease: Lease, rank: int, wire: Wire, hello: FromSupervisor) -> bool:
        """Take the supervisor of a further node that said hello; false where it is refused.

        The lease's own is connected once those of all its nodes have admitted its key.
        """
        if not self._members.joined(lease, rank, wire, hello):
            self._refuse(lease, None)
            return False
        return True

    def heard_member(self, lease: Lease, rank: int, message: FromSupervisor) -> None:
        """Take ``admitted`` of a further node."""
        if message["type"] != "admitted":
            return
        if self._members.admitted(lease, rank, message["client_key"]):
            self.send(lease.id, self._members.nodes(lease))
            self._wake()

    def _refuse(self, lease: Lease, account: int | None) -> None:
        log.error(
            "a second supervisor with another key was refused; it is of account %s", account,
            extra={"lease": lease.id, "user": lease.user, "reason": "second_supervisor"},
        )  # fmt: skip
        self._alerts[lease.id] = Alert(
            lease.id,
            "second_supervisor",
            f"A second supervisor of lease {lease.id} came with another key and was refused: "
            "somebody else has the lease's token. End the lease, and look for whom it was.",
        )
        self._wake()

    def not_understood(self, lease: Lease) -> None:
        """Note that a start came up with another major version of the protocol, and has failed.

        A supervisor that was heard before stays what it is.
        """
        known = self._lines.get(lease.id)
        if known is None or known.attempt != lease.attempt:
            line = self._lines[lease.id] = _Line(lease.attempt, None, "", "", None, None)
            line.bye = "other_version"
            self._wake()

    def alerts(self) -> list[Alert]:
        """Return an alert for each lease that a second supervisor came for."""
        return list(self._alerts.values())

    def lost(self, lease_id: str, wire: Wire) -> None:
        """Note that a channel closed; one that was replaced already is ignored."""
        self._members.lost(lease_id, wire)
        line = self._lines.get(lease_id)
        if line is not None and line.wire is wire:
            line.wire = None
            for future in line.waiting.values():
                future.cancel()
            self._wake()

    def heard(self, lease_id: str, message: FromSupervisor) -> None:
        """Take ``admitted``, ``drained`` and ``bye``."""
        line = self._lines[lease_id]
        match message.get("type"):
            case "admitted":
                future = line.waiting.pop(message["client_key"], None)
                if future is not None and not future.done():
                    future.set_result(None)
            case "drained":
                line.drained = message["result"]
                _note(line, message)
                self._wake()
            case "bye":
                line.bye = message.get("reason", "ended")
                if "parked" in message:
                    _note(line, message)
                self._wake()

    async def admit(self, lease: Lease, client_key: str, kernel_id: str) -> tuple[str, str]:
        """Have a home kernel's key admitted; return the supervisor's address and server key.

        Raises:
            GPULeaseError: ``companion_unreachable`` (503).
        """
        line = self._lines.get(lease.id)
        if line is None or line.wire is None or line.attempt != lease.attempt:
            raise _unreachable("The companion of this lease is not connected at present.")
        future = line.waiting.get(client_key) or asyncio.get_running_loop().create_future()
        line.waiting[client_key] = future
        line.wire.tell({"type": "admit", "client_key": client_key, "kernel_id": kernel_id})
        try:
            async with asyncio.timeout(ADMIT_SECONDS):
                await asyncio.shield(future)
        except (TimeoutError, asyncio.CancelledError):
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            raise _unreachable("The companion did not take this kernel's key in time.") from None
        finally:
            line.waiting.pop(client_key, None)
        line.admitted = _newest({**line.admitted, client_key: kernel_id})
        self._wake()
        return line.address, line.public_key

    def settle(self, lease_id: str, alive: set[str]) -> None:
        """Withdraw the keys that an earlier service admitted for kernels that ended since."""
        line = self._lines.get(lease_id)
        if line is not None and line.learned:
            learned, line.learned = line.learned, set()
            self.revoke(lease_id, learned - alive)

    def revoke(self, lease_id: str, kernels: set[str]) -> None:
        """Withdraw the keys of kernels that ended."""
        line = self._lines.get(lease_id)
        if line is None:
            return
        for key, kernel_id in list(line.admitted.items()):
            if kernel_id in kernels:
                del line.admitted[key]
                self.send(lease_id, {"type": "revoke", "client_key": key, "kernel_id": kernel_id})

    def state(self, lease_id: str) -> LinkState | None:
        """Return what the channel of a lease shows."""
        line = self._lines.get(lease_id)
        if line is None:
            return None
        return LinkState(
            attempt=line.attempt,
            connected=line.wire is not None
            and self._members.complete(lease_id, line.attempt, line.nodes),
            pid=line.pid,
            drained=line.drained,
            in_use=bool(line.admitted) and line.wire is not None,
            bye=line.bye,
            account=line.account,
        )

    def left_behind(self, lease_id: str) -> tuple[tuple[tuple[str, str], ...], int]:
        """Return what the last drain did not copy back, and how many values it parked."""
        line = self._lines.get(lease_id)
        return (line.blockers, line.parked) if line is not None else ((), 0)

    def agree(self, lease: Lease) -> None:
        """Tell a supervisor where its lease stands, if it was told otherwise."""
        line = self._lines.get(lease.id)
        if line is None or line.wire is None or line.attempt != lease.attempt:
            return
        if lease.state not in _STANDING:
            return
        end, standing = lease_word(lease), self.standing(lease)
        if end != line.told_end:
            line.told_end = end
            self.send(lease.id, end)
        if _word(standing) != _word(line.told):
            before, line.told = line.told, standing
            back: ToSupervisor = {"type": "clear" if _word(before)[0] == "warn" else "resume"}
            self.send(lease.id, standing if standing is not None else back)

    def standing(self, lease: Lease) -> ToSupervisor | None:
        """Return what a supervisor must know of its lease's state, if it is not plain active."""
        message = _standing(lease)
        if message is not None and message["type"] == "drain":
            message["interrupt_grace"] = self._grace(lease)
        return message

    def send(self, lease_id: str, message: ToSupervisor) -> bool:
        """Tell a supervisor; return whether one is connected."""
        line = self._lines.get(lease_id)
        if line is None or line.wire is None:
            return False
        if message.get("type") in {"drain", "resume"}:
            line.drained = ""  # what it answered to an earlier drain says nothing any more
            line.blockers, line.parked = (), 0
        line.wire.tell(message)
        return True

    def cut(self, lease_id: str) -> None:
        """Hang up on a supervisor that keeps running after a request to end."""
        line = self._lines.get(lease_id)
        if line is not None and line.wire is not None:
            wire, line.wire = line.wire, None
            wire.hang_up()

    def forget(self, kept: set[str]) -> None:
        """Drop the lines and the alerts of leases that are over."""
        for lease_id in self._alerts.keys() - kept:
            del self._alerts[lease_id]
        self._members.forget(kept)
        for lease_id in self._lines.keys() - kept:
            line = self._lines[lease_id]
            if line.wire is None:
                del self._lines[lease_id]

    def close(self) -> None:
        """Hang up at shutdown; supervisors come back to the next service."""
        self._members.close()
        for line in self._lines.values():
            if line.wire is not None:
                line.wire.hang_up()


def lease_word(lease: Lease) -> ToSupervisor:
    """Return what a supervisor keeps for the time when the service is silent."""
    return {"type": "lease", "hard_end": lease.hard_end.isoformat() if lease.hard_end else ""}


def _newest(admitted: dict[str, str]) -> dict[str, str]:
    """Return the keys that were admitted last: a supervisor may name new ones for ever."""
    return dict(list(admitted.items())[-KEYS_MAX:])


def _word(message: ToSupervisor | None) -> tuple[object, ...]:
    """Return what of a warning or drain is worth telling again when it changes."""
    if message is None:
        return ("",)
    return message["type"], message.get("until"), message.get("park")


def _note(line: _Line, message: FromSupervisor) -> None:
    # Long words are cut, not refused: the answer matters more.
    line.blockers = tuple(
        (each["name"][:_NAME], each["sentence"][:_SENTENCE])
        for each in message.get("blockers", [])[:_BLOCKERS]
    )
    line.parked = message.get("parked", 0)


def _standing(lease: Lease) -> ToSupervisor | None:
    goes_on = lease.becomes is not None
    why = lease.reason if goes_on else lease.end_reason_wanted or lease.reason
    if lease.state is LeaseState.WARNED and lease.warned_until:
        return {"type": "warn", "until": lease.warned_until.isoformat(), "reason": why}
    if lease.state is LeaseState.DRAINING and lease.drain_until:
        until = lease.drain_until.isoformat()
        return {"type": "drain", "until": until, "reason": why, "park": lease.park}
    return None


def _unreachable(sentence: str) -> GPULeaseError:
    return GPULeaseError(
        "companion_unreachable",
        sentence,
        next_step="Try again in a moment; if it stays, return the lease and request a new one.",
    )
