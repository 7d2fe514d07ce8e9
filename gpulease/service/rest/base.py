"""The base of REST handlers: who is asking, what a method needs, takes and answers.

Marks on the methods say it (``needs_scope``, ``answers``); the check and the API's description
follow from the marks.  Who speaks another version of the protocol is refused first.  A scope opens
an address, not everybody's things: whose lease or group it is about is decided further inside.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from jupyterhub.services.auth import HubOAuthenticated
from pydantic import BaseModel
from tornado.web import HTTPError, RequestHandler

from gpulease.errors import GPULeaseError
from gpulease.protocol.names import HEADER_PROTOCOL, PROTOCOL_VERSION, is_understood
from gpulease.service.hubs.auth import (
    RESTART_ONCE,
    SCOPE_ADMIN,
    SCOPE_METRICS,
    SCOPE_REQUEST,
    SCOPE_RESERVE,
    Asker,
    ServiceOAuth,
    asker_of,
)
from gpulease.service.rest.answering import Answers


def check_protocol(who: str, version: str, next_step: str) -> None:
    """Refuse another major version of the protocol.

    Raises:
        GPULeaseError: ``wrong_protocol`` (426).
    """
    if is_understood(version):
        return
    raise GPULeaseError(
        "wrong_protocol",
        f"{who} speaks protocol {version}, the lease service {PROTOCOL_VERSION}.",
        next_step=next_step,
        numbers={"client": version, "service": PROTOCOL_VERSION},
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


def needed_scopes(handler: type, method: str) -> tuple[str, ...]:
    """Return the scopes of which a method needs one; empty where it is closed or not there."""
    found: tuple[str, ...] = getattr(getattr(handler, method.lower(), None), "needed_scopes", ())
    return found


def check_scopes(asker: Asker, scopes: Iterable[str]) -> None:
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


METHODS: Final = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Text:
    """An answer that is no JSON."""

    media: str


#: A websocket's first answer; what is said on it stands in ``protocol``.
WEBSOCKET: Final[Mapping[int, Any]] = {101: None}


@dataclass(frozen=True)
class answers:  # noqa: N801 - a decorator
    """Mark a handler's method with what it takes and answers.

    Attributes:
        shapes: by status, the shape of a good answer: a type, ``Text``, or ``None`` for no body.
        body: the shape of its body.
        query: the model of its query.
        refuses: statuses of refusals beyond those that every request may meet.
        repeatable: takes an ``Idempotency-Key``.
    """

    shapes: Mapping[int, Any]
    body: type[Any] | None = None
    query: type[BaseModel] | None = None
    refuses: tuple[int, ...] = ()
    repeatable: bool = False

    def __call__(self, method: F) -> F:
        """Mark it."""
        method.described = self  # type: ignore[attr-defined]
        return method


@dataclass(frozen=True)
class Operation:
    """One method of one address."""

    method: str
    path: str
    handler: type[RequestHandler]

    @property
    def described(self) -> answers:
        """What it takes and answers."""
        found: answers = getattr(self.handler, self.method).described
        return found

    @property
    def summary(self) -> str:
        """The first sentence of the method's own words."""
        said = getattr(self.handler, self.method).__doc__ or ""
        return str(said).partition("\n\n")[0].replace("\n", " ").strip()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of which it needs one."""
        return needed_scopes(self.handler, self.method)


def operations(api: Mapping[str, type[RequestHandler]]) -> Iterator[Operation]:
    """Yield every operation of a table of addresses."""
    for path, handler in api.items():
        for method in METHODS:
            if hasattr(getattr(handler, method), "described"):
                yield Operation(method, path, handler)


_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: What a browser calls the places where a page stands inside another.
_FRAMES = frozenset({"iframe", "frame", "embed", "object", "fencedframe"})


class LogIn:
    """What the hub's own handlers are to take for the log-in of this service."""

    settings: dict[str, Any]

    @property
    def hub_auth(self) -> ServiceOAuth:
        """The hub's log-in for this service."""
        found: ServiceOAuth = self.settings["hub_auth"]
        return found

    def get_current_user(self) -> Any:
        """Return nobody: ``admit`` sets the user, for the hub's way blocks the loop."""
        return None


_OTHER_VERSION = (
    "Restart your server. If this stays, ask your admin to install the lease service's version of"
    " gpulease where servers run."
)


# The hub's mixin brings its cross-site check.
class BaseHandler(LogIn, HubOAuthenticated, Answers):
    """A handler that knows who asks before it takes a body, and before its method runs."""

    asker: Asker
    #: What a person's server sends without their doing; it is bounded as looking is.
    by_itself = False

    async def admit(self) -> None:
        """Find out who asks.

        Raises:
            GPULeaseError: ``not_logged_in`` (401), ``xsrf_failed``, ``cross_site``,
                ``no_access``, ``bad_name`` (403), what ``check_scopes`` refuses with,
                ``too_many_changes``, ``too_many_requests`` (429), ``hub_unreachable`` (502),
                ``wrong_protocol`` (426).
        """
        if spoken := self.request.headers.get(HEADER_PROTOCOL):
            check_protocol("Your server", spoken, _OTHER_VERSION)
        try:
            model = await self.hub_auth.get_user(self, sync=False)
        except HTTPError as error:
            raise GPULeaseError(
                "hub_unreachable",
                "The hub does not answer, so nobody can be recognised.",
                next_step="Running leases continue; try again in a moment.",
            ) from error
        if model is None:
            self._unknown()
            return
        if self.hub_auth.access_scopes and not self.hub_auth.check_scopes(
            self.hub_auth.access_scopes, model
        ):
            raise GPULeaseError(
                "no_access",
                "This token may not use the lease service.",
                next_step=RESTART_ONCE,
            )
        if not getattr(self, "_token_authenticated", False):
            self._check_where_from()
        self.current_user = model
        self.asker = self._managing(asker_of(model, self.settings["hub_names"]))
        if not self.asker.admin:
            bounds = self.services.bounds
            looks = self.by_itself or self.request.method in _READING
            rates = (bounds.looks,) if looks else (bounds.changes, bounds.changes_of_a_day)
            for rate in rates:
                rate.take(self.asker.name)
        if (
            self.request.method in self.allowed_methods()
        ):  # else it is answered that there is no such one
            check_scopes(self.asker, needed_scopes(type(self), str(self.request.method)))

    def _managing(self, asker: Asker) -> Asker:
        """Return an asker with the groups that the policy makes them a manager of."""
        managed = self.services.policies.current.reservations.managed_by(asker.name)
        if not managed:
            return asker
        return replace(asker, leads=tuple(sorted({*asker.leads, *managed})))

    def _check_where_from(self) -> None:
        """Refuse what another site's page, or a frame, asks with a visitor's cookie.

        Browsers say where a request comes from (Fetch Metadata); older ones say nothing, and the
        other checks hold: XSRF token, frame-ancestors, SameSite.

        Raises:
            GPULeaseError: ``cross_site``.
        """
        said = self.request.headers.get
        site, place = said("Sec-Fetch-Site", "none"), said("Sec-Fetch-Dest", "")
        framed = place in _FRAMES
        link = self.as_page and said("Sec-Fetch-Mode") == "navigate" and not framed
        near = site in {"same-origin", "none"} or (site == "same-site" and self.may_be_framed)
        if (framed and not self.may_be_framed) or not (near or link):
            raise GPULeaseError(
                "cross_site",
                "This was asked for by another page, or inside of one.",
                next_step="Open the lease service's own page.",
            )

    def check_page_token(self, given: str) -> None:
        """Refuse a request that no page of this log-in made.

        Raises:
            GPULeaseError: ``xsrf_failed``.
        """
        token = self.xsrf_token
        wanted = token if isinstance(token, bytes) else str(token).encode()
        if not hmac.compare_digest(given.encode(), wanted):
            raise _xsrf_failed()

    def _unknown(self) -> None:
        """Send a browser's navigation to log in, refuse everything else."""
        mode = self.request.headers.get("Sec-Fetch-Mode", "navigate")
        if self.as_page and self.request.method in _READING and mode == "navigate":
            self.redirect(self.get_login_url())
            return
        if self.get_secure_cookie(self.hub_auth.cookie_name):
            # The hub's log-in takes a cookie without its page's token for none, and does not say.
            try:
                self.check_xsrf_cookie()
            except HTTPError:
                raise _xsrf_failed() from None
        raise GPULeaseError(
            "not_logged_in",
            "Nobody could be recognised from this request.",
            next_step="Load the page again to log in, or send a valid token.",
        )


class PageBase(BaseHandler):
    """The base of pages: the same, but a refusal is in words and log-in is by redirect."""

    as_page = True


def _xsrf_failed() -> GPULeaseError:
    return GPULeaseError(
        "xsrf_failed",
        "This page belongs to an earlier sign-in.",
        next_step="Load the page again to sign in.",
    )
