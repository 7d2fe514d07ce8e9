"""The home kernel's connection to the notebook server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpulease.channel.unix import UnixClient
from gpulease.errors import GPULeaseError
from gpulease.kernel.clock import own_times
from gpulease.kernel.inbox import Inbox

Event = dict[str, Any]


def connect(
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
        status=503,
    )


def _late() -> GPULeaseError:
    """The extension is connected: whom it asked has not answered."""
    return GPULeaseError(
        "service_unreachable",
        "The lease service does not answer.",
        next_step="Run the cell again in a moment.",
        status=503,
    )
