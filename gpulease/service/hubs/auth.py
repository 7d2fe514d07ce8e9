"""Who is asking: from the hub's model of a token to what that token may do here.

Three facts shape how scopes are read: the hub's own check ignores filters on custom
scopes, tokens for servers that do not exist can be minted, and shared servers put foreign names
into a token.  So a server's name counts only under all four conditions of ``named_server`` and
``prove_server``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jupyterhub.services.auth import HubOAuth
from traitlets import default

from gpulease.errors import GPULeaseError
from gpulease.protocol.hub_names import ONE_HUB, HubNames
from gpulease.system.token_turns import TokenTurns

SCOPE_REQUEST = "custom:gpulease:request"
SCOPE_RESERVE = "custom:gpulease:reserve"
SCOPE_ADMIN = "custom:gpulease:admin"
#: The hub's own scope for figures.
SCOPE_METRICS = "read:metrics"
_SERVER_SCOPE = "access:servers"

#: Seconds for which the hub's word on a token is believed.
CACHE_SECONDS = 30
#: Tokens about which the hub is asked at once: fewer than the 10 requests that tornado's client has
#: on their way, for those that wait there are timed out.
_AT_ONCE = 8
#: And about tokens that it recognised before.
_OF_KNOWN = 4

RESTART_ONCE = "Restart your server once: it was started before GPUs were offered here."


@dataclass(frozen=True)
class Asker:
    """A person or service as the scopes of one token show them.

    Attributes:
        name: the user, as ``hub_names`` says; a service is ``service/NAME``, which no user can be
            called: so it never stands for the user of its name.
        kind: ``user`` or ``service``.
        groups: the hub groups of the user.
        may_ask: may ask for GPUs for themselves.
        admin: may see and change everything; never one of a further hub's.
        may_measure: may read the figures for Prometheus.
        leads: groups whose leases they may see and reserve for.
        leads_all: may do so for every group of every hub.
        claimed_server: the one server the token names, not yet proved active; ``None`` for none.
        problem: why no server is named, for the refusal.
        names: how the people and groups of their hub are called.
    """

    name: str
    kind: str = "user"
    groups: tuple[str, ...] = ()
    may_ask: bool = False
    admin: bool = False
    may_measure: bool = False
    leads: tuple[str, ...] = ()
    leads_all: bool = False
    claimed_server: str | None = None
    problem: str = ""
    names: HubNames = ONE_HUB

    @property
    def leads_hub(self) -> bool:
        """Whether they teach all of their hub's groups, where there are other hubs."""
        return bool(self.names.everyone) and self.names.everyone in self.leads

    def may_see(self, user: str, groups: tuple[str, ...]) -> bool:
        """Tell whether a lease of this user, in these groups, is theirs to see."""
        return self.admin or user == self.name or self.leads_any(groups)

    def leads_any(self, groups: tuple[str, ...]) -> bool:
        """Tell whether they teach one of these groups."""
        return self.leads_all or bool(set(self.leads) & set(groups))

    def teaches(self, group: str) -> bool:
        """Tell whether they teach a group."""
        return self.leads_any((group,)) or (self.leads_hub and self.names.owns(group))

    def may_change(self, user: str) -> bool:
        """Tell whether a lease of this user is theirs to keep and to end."""
        return self.admin or (self.may_ask and user == self.name)


async def close_hub_client() -> None:
    """Close the client with which JupyterHub's own code has asked the hub in this event loop."""
    try:
        from jupyterhub.httpclient import JupyterHubHTTPClient
    except ImportError:  # JupyterHub 5 asks by tornado's client, which keeps nothing open
        return
    # Its connector looks names up in a thread of its own, where aiodns is installed.
    await JupyterHubHTTPClient.loop_instance().close()


def asker_of(model: Mapping[str, Any], names: HubNames = ONE_HUB) -> Asker:
    """Read a hub's user model (``GET /hub/api/user``) of a token.

    Scopes hold for the hub that gave them.  Whoever has one of ours there without a filter, admins
    of a further hub among them, teaches all of that hub; only the first hub's admins administer.

    Raises:
        GPULeaseError: ``bad_name`` (403).
    """
    kind = str(model.get("kind", "user"))
    local = str(model["name"])
    called = names.user(local)
    scopes = frozenset(str(scope) for scope in model.get("scopes") or ())
    admin = SCOPE_ADMIN in scopes and not names.hub
    may_ask = bool(scopes & {SCOPE_REQUEST, f"{SCOPE_REQUEST}!user={local}", SCOPE_ADMIN})
    server, problem = named_server(local, kind, scopes)
    leads = {names.group(group) for group in _filtered(scopes, SCOPE_RESERVE, "group")} - {""}
    everywhere = SCOPE_RESERVE in scopes and (admin or not names.further)
    if names.further and scopes & {SCOPE_RESERVE, SCOPE_ADMIN}:
        leads.add(names.everyone)
    return Asker(
        name=called if kind == "user" else _service(names, kind, local),
        kind=kind,
        groups=names.groups(str(group) for group in model.get("groups") or ()),
        may_ask=may_ask and kind == "user",
        admin=admin,
        may_measure=SCOPE_METRICS in scopes and not names.hub,
        leads=tuple(sorted(leads)),
        leads_all=everywhere,
        claimed_server=server if may_ask else None,
        problem=problem or ("" if may_ask else "the token may not ask for GPUs"),
        names=names,
    )


def _service(names: HubNames, kind: str, name: str) -> str:
    return f"{names.hub}/{kind}/{name}" if names.hub else f"{kind}/{name}"


def named_server(name: str, kind: str, scopes: frozenset[str]) -> tuple[str | None, str]:
    """Return the one server of ``name`` that the scopes name, or ``None`` and why not.

    Any other ``access:servers`` scope beside it, filtered or not, makes the token ambiguous.
    """
    if kind != "user":
        return None, "the token belongs to a service"
    access = [scope for scope in scopes if scope.partition("!")[0] == _SERVER_SCOPE]
    if not access:
        return None, "the token names no server"
    if len(access) > 1:
        return None, "the token reaches more than one server"
    key, _, target = access[0].partition("!")[2].partition("=")
    owner, slash, server = target.partition("/")
    if key != "server" or not slash:
        return None, "the token is not one server's own"
    if owner != name:
        return None, "the token names another user's server"
    return server, ""


def _filtered(scopes: frozenset[str], scope: str, key: str) -> set[str]:
    prefix = f"{scope}!{key}="
    return {each.removeprefix(prefix) for each in scopes if each.startswith(prefix)}


class ServerLookup(Protocol):
    """What proving a server needs of the hub's API."""

    async def server_active(self, user: str, server: str) -> bool:
        """Tell whether the hub says that this server runs or starts."""


async def prove_server(asker: Asker, hub: ServerLookup) -> str:
    """Return the asking server's name.

    Raises:
        GPULeaseError: ``no_server`` (403) when the token does not prove exactly one active server.
    """
    if asker.claimed_server is None:
        raise GPULeaseError(
            "no_server",
            f"Only a notebook server's own token can do this: {asker.problem}.",
            next_step=RESTART_ONCE,
            status=403,
        )
    if not await hub.server_active(asker.name, asker.claimed_server):
        raise GPULeaseError(
            "no_server",
            "The hub does not know the server that this token names as running.",
            next_step="Start the server from the hub's home page, then try again.",
            status=403,
        )
    return asker.claimed_server


class ServiceOAuth(HubOAuth):
    """The hub's log-in for this service; tokens in addresses are never read.

    The parent reads ``?token=`` on websockets even where tokens in addresses are off, and an
    address ends in access logs.  It asks the hub about any number of tokens at once: when thousands
    of notebooks come back to a service that was restarted, none of them had an answer in time.
    Tokens that the hub has recognised before have turns of their own: guessed ones keep nobody out.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._turns = TokenTurns(_AT_ONCE, _OF_KNOWN)

    async def _api_request(self, *args: Any, **options: Any) -> Any:
        token = str(options.get("headers", {}).get("Authorization", ""))
        ask = super()._api_request
        return await self._turns.ask(token, lambda: ask(*args, **options))

    @default("cache_max_age")
    def _cache_max_age(self) -> int:
        return CACHE_SECONDS

    def _get_token_url(self, handler: Any) -> str:  # noqa: ARG002
        return ""
