"""The home kernel's connections: to a lease's supervisor, and to the notebook server (the bus)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpulease.channel.curve import CurveClient
from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.channel.unix import UnixClient
from gpulease.errors import GPULeaseError
from gpulease.kernel.clock import own_times
from gpulease.kernel.inbox import Inbox
from gpulease.protocol.service import ConnectionView

Push = dict[str, Any]


class ControlClient(CurveClient):
    """One connection to a supervisor.

    ``early`` is called on the I/O thread with each pushed message, ``on_push`` on the main thread,
    and with ``{"push": "lost"}`` once when the supervisor does not answer any more; calls that wait
    for its answer fail then.

    Attributes:
        cell: whether a GPU cell runs here, from its first value sent to its last value back; the
            supervisor is told with each ping, and forgets it where none comes.
    """

    def __init__(
        self,
        io: IOThread,
        inbox: Inbox,
        view: ConnectionView,
        keys: KeyPair,
        on_push: Callable[[Push], None],
        *,
        early: Callable[[Push], None],
    ) -> None:
        self._inbox = inbox
        self._on_push = on_push
        self._early = early
        self.cell = False
        super().__init__(
            io,
            Endpoint(view["address"], view["server_key"]),
            keys,
            pushed=self._take,
            lost=lambda: self._put({"push": "lost"}, urgent=True),
            beat=lambda: {"cell": self.cell},
            gone=self._unreachable,
        )

    def call(self, name: str, args: Mapping[str, Any], timeout: float) -> Any:
        """Return the supervisor's answer.

        Raises:
            GPULeaseError: its problem, or ``lease_unreachable`` after ``timeout`` seconds, sooner
                where the supervisor is gone.
        """
        try:
            return self.start_call(name, args).result(timeout)
        except TimeoutError:
            raise GPULeaseError(
                "lease_unreachable",
                f"The lease's supervisor did not answer within {timeout:.0f} s.",
                next_step="Run the cell again; %gpu shows the state of the lease.",
                numbers={"seconds": timeout},
            ) from None

    def _take(self, message: Push) -> None:
        self._early(message)
        self._put(message, urgent=message.get("push") in ("companion_died", "end"))

    def _put(self, message: Push, *, urgent: bool) -> None:
        self._inbox.put(partial(self._hand_over, message), urgent=urgent)

    def _hand_over(self, message: Push) -> None:
        if not self.closed:
            self._on_push(message)

    def _unreachable(self) -> GPULeaseError:
        why = "The lease's supervisor does not answer any more."
        if self.closed:
            why = "The connection to the lease is closed."
        return GPULeaseError("lease_unreachable", why, next_step="Run the cell again.")


_DEATHS = ("companion_died", "lost", "end")


class Joining:
    """What a supervisor pushes between a companion's opening and its first answer.

    A death ends the joining at once (by ``fail``) instead of after its time-out; everything else
    (a warning, a drain) is kept until the companion is attached.  Main thread only.
    """

    def __init__(self, fail: Callable[[GPULeaseError], None]) -> None:
        self._fail = fail
        self._pushes: list[Push] = []

    def begin(self) -> None:
        """Another companion is being opened."""
        self._pushes.clear()

    def take(self, push: Push) -> None:
        """Keep a push until there is an attachment to apply it to."""
        self._pushes.append(push)
        if push["push"] in _DEATHS:
            self._fail(_dead(push))

    def check(self) -> None:
        """Raise if the companion is gone already.

        Raises:
            GPULeaseError: ``companion_died``.
        """
        for push in self._pushes:
            if push["push"] in _DEATHS:
                raise _dead(push)

    def rest(self) -> list[Push]:
        """Return what came meanwhile, in order, and forget it."""
        pushes, self._pushes = self._pushes, []
        return pushes


def _dead(push: Push) -> GPULeaseError:
    detail = push.get("detail") or push.get("sentence") or "its process ended"
    return GPULeaseError(
        "companion_died",
        f"The companion of this notebook died before it was connected: {detail}.",
        next_step="Run the cell again: the next GPU cell gets a new companion.",
    )


Event = dict[str, Any]


def connect_bus(
    path: str, kernel_id: str, inbox: Inbox, on_event: Callable[[Event], None]
) -> UnixClient:
    """Connect to the Unix socket of ``gpulease.lab``.

    ``on_event`` runs on the main thread with every event; a lost connection is told as
    ``{"event": "link", "up": False}``, and each new one brings a snapshot.
    """

    def take(event: Event) -> None:
        inbox.put(partial(on_event, event))

    return UnixClient(
        path,
        kernel_id,
        pushed=take,
        lost=lambda: take({"event": "link", "up": False}),
        gone=_down,
        late=_late,
        read=own_times,  # no sentence of the service's is shown with another clock
    )


def _down() -> GPULeaseError:
    return GPULeaseError(
        "server_link_down",
        "The notebook server's gpulease extension cannot be reached.",
        next_step="Run the cell again in a moment; if it stays so, restart your server.",
    )


def _late() -> GPULeaseError:
    """The extension is connected: whom it asked has not answered."""
    return GPULeaseError(
        "service_unreachable",
        "The lease service does not answer.",
        next_step="Run the cell again in a moment.",
    )
