"""Which permission each method of a handler needs, shown where the method stands.

Whose lease or group it is about is decided further inside: a scope opens an address, not
everybody's things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from gpulease.errors import GPULeaseError
from gpulease.service.hubs.auth import (
    RESTART_ONCE,
    SCOPE_ADMIN,
    SCOPE_METRICS,
    SCOPE_REQUEST,
    SCOPE_RESERVE,
    Asker,
)

#: Whoever the hub lets use the service at all.
ACCESS: Final = "access:services!service=gpulease"
#: No log-in.
PUBLIC: Final = "none"
#: Credentials that are no token of the hub's.
LEASE_TOKEN: Final = "the lease's own token"  # noqa: S105
AGENT_TOKEN: Final = "a node agent's own token"  # noqa: S105
WARM_TOKEN: Final = "the own token of a pod that stands ready"  # noqa: S105

_HOLDS: dict[str, Callable[[Asker], bool]] = {
    ACCESS: lambda _: True,
    SCOPE_REQUEST: lambda asker: asker.may_ask or asker.admin,
    SCOPE_RESERVE: lambda asker: asker.admin or asker.leads_all or bool(asker.leads),
    SCOPE_ADMIN: lambda asker: asker.admin,
    SCOPE_METRICS: lambda asker: asker.may_measure,
}
_REFUSALS = {
    SCOPE_REQUEST: ("may_not_ask", "This token may not ask for GPUs.", RESTART_ONCE),
    SCOPE_RESERVE: ("may_not_reserve", "This token may not reserve GPUs.", "Ask an admin."),
    SCOPE_ADMIN: ("admins_only", "Only a GPU admin may do this.", "Ask an admin."),
    SCOPE_METRICS: (
        "may_not_measure",
        "This token may not read the figures.",
        "Give its role the scope read:metrics.",
    ),
}
_CLOSED = ("forbidden", "Nobody may do this.", "")

F = TypeVar("F", bound=Callable[..., Any])


def needs_scope(*scopes: str) -> Callable[[F], F]:
    """Mark a handler's method with the scopes of which one is needed.

    ``BaseHandler.admit`` checks it before the body is read; what is not marked is closed.
    """

    def mark(method: F) -> F:
        method.needed_scopes = scopes  # type: ignore[attr-defined]
        return method

    return mark


def needed(handler: type, method: str) -> tuple[str, ...]:
    """Return the scopes of which a method needs one; empty where it is closed or not there."""
    found: tuple[str, ...] = getattr(getattr(handler, method.lower(), None), "needed_scopes", ())
    return found


def check(asker: Asker, scopes: Iterable[str]) -> None:
    """Refuse an asker who holds none of these.

    Raises:
        GPULeaseError: ``may_not_ask``, ``may_not_reserve``, ``admins_only``, ``may_not_measure``,
            ``forbidden`` (403).
    """
    wanted = tuple(scopes)
    if any(_HOLDS[scope](asker) for scope in wanted if scope in _HOLDS):
        return
    reason, sentence, step = _REFUSALS.get(wanted[0], _CLOSED) if wanted else _CLOSED
    raise GPULeaseError(reason, sentence, next_step=step, status=403)
