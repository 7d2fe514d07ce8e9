"""The home kernel's connection to a lease's supervisor: its control client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpulease.channel.curve import CurveClient
from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
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
                status=504,
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
        return GPULeaseError("lease_unreachable", why, next_step="Run the cell again.", status=504)
