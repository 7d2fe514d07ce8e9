"""The hub's REST API, as far as the lease service needs it.

These are the calls "as the service" (by its own token): which servers run, and refreshing a busy
server's activity.  What a stopped server means is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from gpulease.errors import GPULeaseError
from gpulease.service.hubs.auth import CACHE_SECONDS

_PAGE = 200
#: Calls under way at once; fewer than the HTTP client makes, which others use, too.
_AT_ONCE = 6
#: Users about whom the hub is asked one by one; for more than these it lists them all.
_FEW = 10
#: So many users of a list cost the hub about as much as one question for a single one.
_LIST_COST = 20
_KNOWN_MAX = 50_000
_PAGED = "application/jupyterhub-pagination+json"


#: The hub answers a start within ten seconds, whether or not the server is there by then.
_START_SECONDS = 30.0


class HubUnreachableError(GPULeaseError):
    """The hub gave no usable answer; nothing may be concluded from that.

    ``str`` is what is wrong, for the log; people read that it does not answer.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(
            "hub_unreachable",
            "The hub does not answer, so the asking server cannot be recognised.",
            next_step="Running leases continue; try again in a moment.",
            status=502,
        )
        self.problem = problem

    def __str__(self) -> str:
        return self.problem

    def to_problem(self) -> dict[str, Any]:
        """Return it as people read it."""
        return {**super().to_problem(), "detail": f"{self.sentence} {self.next_step}"}


class HubRefusedError(HubUnreachableError):
    """The hub will not do what it was asked for: its status code, and its own words."""

    def __init__(self, problem: str, code: int, said: str) -> None:
        super().__init__(problem)
        self.code = code
        self.said = said


@dataclass(frozen=True)
class HubServer:
    """One server of a user, as the hub's API shows it."""

    name: str
    ready: bool
    pending: str
    stopped: bool
    display_name: str = ""
    url: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # that it was started with

    @property
    def active(self) -> bool:
        """It runs or starts; a stopping server no longer counts."""
        return not self.stopped and self.pending != "stop" and (self.ready or bool(self.pending))


@dataclass(frozen=True)
class _Seen:
    """The servers of a user, when the hub said so, and until when that is its present word."""

    at: float
    until: float
    servers: dict[str, HubServer]


class HubAPI:
    """Asks the hub; answers of ``server_active`` are believed for ``cache_seconds``.

    Where many ask, as when all servers come back to a service that was restarted, one list answers
    all of them, and what it says is believed as long as whose a token is.

    ``tls``: whom to trust and who we are, where the hub's inner traffic is encrypted
    (``internal_ssl``).
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        cache_seconds: float = 5.0,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._cache_seconds = cache_seconds
        self._timeout = timeout
        self._tls = tls
        self._clock = clock
        self._known: dict[str, _Seen] = {}  # by user
        self._groups: dict[str, tuple[str, ...]] = {}
        self._asked: deque[float] = deque()  # when somebody's servers were asked for, of late
        self._listing: asyncio.Task[object] | None = None
        self._listed = 0  # how many users the last list held
        self._absent_until = float("-inf")  # for so long, who was not listed has no server
        # A class that begins asks for hundreds at once: what waits for its turn here does not
        # count as a hub that does not answer.
        self._turns = asyncio.Semaphore(_AT_ONCE)
        #: What went wrong in the last call, "" when it worked; shown on ``health``.
        self.problem = ""

    async def servers(self, user: str, *, fresh: bool = False) -> dict[str, HubServer]:
        """Return the servers of a user by name; empty when the hub has no such user.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        if not fresh:
            known = self._believed(user)
            if known is None and (self._listing is not None or self._many_ask()):
                await self._list_once()
                known = self._believed(user)
            if known is not None:
                return known
            self._asked.append(self._clock())
        return await self._of_one(user)

    def seen(self, user: str) -> dict[str, HubServer]:
        """Return the servers of a user as they were seen last, empty after ``CACHE_SECONDS``.

        Good for where a GPU shall go, whose server is looked at again while it has one; no proof of
        who asks.
        """
        seen = self._known.get(user)
        recent = seen is not None and self._clock() < seen.at + CACHE_SECONDS
        return seen.servers if seen is not None and recent else {}

    async def server_active(self, user: str, server: str) -> bool:
        """Tell whether this server runs or starts."""
        found = (await self.servers(user)).get(server)
        if found is None or not found.active:  # it may have started since the cached answer
            found = (await self.servers(user, fresh=True)).get(server)
        return found is not None and found.active

    async def look(self) -> None:
        """Ask the hub who we are: ``problem`` is then of now, also while nobody has a lease.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        await self._call("GET", "user")

    async def knows(self, user: str, server: str) -> bool:
        """Tell whether the hub has this server of this user, be it stopped; a default one is there.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        path = f"users/{quote(user, safe='')}?include_stopped_servers=1"
        model = await self._call("GET", path, missing_ok=True)
        return model is not None and (not server or server in _servers(model))

    async def running(self, users: Iterable[str]) -> dict[str, dict[str, HubServer]]:
        """Return the servers of these users; of many by the paged list, of few one by one."""
        wanted = set(users)
        if len(wanted) <= _FEW:
            return {user: await self._of_one(user) for user in sorted(wanted)}
        found = await self._list()
        return {user: found.get(user, {}) for user in wanted}

    def groups_of(self, user: str) -> tuple[str, ...] | None:
        """Return a user's groups as the last answer about them said, ``None`` for unknown."""
        return self._groups.get(user)

    async def members(self, group: str) -> list[str]:
        """Return the names of a group's members, sorted; empty when the hub has no such group.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        model = await self._call("GET", f"groups/{quote(group, safe='')}", missing_ok=True)
        return sorted(str(name) for name in (model or {}).get("users") or ())

    async def groups(self) -> list[str]:
        """Return the names of all groups, sorted.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        return await self._names("groups?")

    async def users(self) -> list[str]:
        """Return the names of all users, sorted.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        return await self._names("users?")

    async def _names(self, path: str) -> list[str]:
        return sorted([str(model["name"]) async for model in self._models(path)])

    async def _models(self, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield what a list of the hub's holds, page by page; ``path`` ends in ``?`` or ``&``."""
        offset: int | None = 0
        while offset is not None:
            page = await self._call("GET", f"{path}offset={offset}&limit={_PAGE}")
            for model in page["items"]:
                yield model
            following = page["_pagination"].get("next")
            offset = following["offset"] if following else None

    async def refresh_activity(self, user: str, server: str, at: datetime) -> None:
        """Tell the hub that this server was used, so that its culler leaves it alone."""
        stamp = at.isoformat()
        body = {"servers": {server: {"last_activity": stamp}}, "last_activity": stamp}
        await self._call("POST", f"users/{quote(user, safe='')}/activity", body=body)

    async def may_start_servers(self) -> bool:
        """Tell whether the service's own role lets it start servers.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        return starts_servers(await self._call("GET", "user"))

    async def start_server(self, user: str, server: str, options: Mapping[str, Any]) -> None:
        """Have a named server of a user started; it need not be there when this returns.

        Raises:
            HubRefusedError: the hub will not.
            HubUnreachableError: the hub did not answer.
        """
        path = f"users/{quote(user, safe='')}/servers/{quote(server, safe='')}"
        # The bare options are understood by JupyterHub 5 and 6.
        await self._send("POST", path, body=dict(options), seconds=_START_SECONDS)

    async def remove_server(self, user: str, server: str) -> bool:
        """Have a named server stopped and removed; tell whether it is gone.

        Raises:
            HubUnreachableError: the hub did not answer, or will not.
        """
        path = f"users/{quote(user, safe='')}/servers/{quote(server, safe='')}"
        status, _ = await self._send(
            "DELETE", path, body={"remove": True}, missing_ok=True, seconds=_START_SECONDS
        )
        return status in (204, 404)

    async def _call(
        self, method: str, path: str, *, body: Any = None, missing_ok: bool = False
    ) -> Any:
        _, found = await self._send(method, path, body=body, missing_ok=missing_ok)
        try:
            return json.loads(found) if found else None
        except ValueError as error:
            self.problem = f"the hub does not answer ({type(error).__name__})"
            raise HubUnreachableError(self.problem) from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        missing_ok: bool = False,
        seconds: float | None = None,
    ) -> tuple[int, bytes]:
        """Return status and body of the hub's answer."""
        request = HTTPRequest(
            f"{self._url}/{path}",
            method=method,
            headers={"Authorization": f"token {self._token}", "Accept": _PAGED},
            body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True,  # DELETE with a body
            request_timeout=seconds or self._timeout,
            connect_timeout=self._timeout,
            ssl_options=self._tls,
        )
        try:
            async with self._turns:
                response = await AsyncHTTPClient().fetch(request)
        except HTTPClientError as error:
            if error.code == 404 and missing_ok:
                return 404, b""
            # Shown on ``health`` to anybody: it names what was asked about, not whom.
            what = path.partition("?")[0].partition("/")[0]
            self.problem = f"the hub answered {error.code} to {method} {what}"
            if 400 <= error.code < 500:
                problem, self.problem = self.problem, "" if _of_a_run(path) else self.problem
                raise HubRefusedError(problem, error.code, _said(error)) from error
            raise HubUnreachableError(self.problem) from error
        except OSError as error:
            self.problem = f"the hub does not answer ({type(error).__name__})"
            raise HubUnreachableError(self.problem) from error
        self.problem = ""
        return response.code, response.body

    async def _of_one(self, user: str) -> dict[str, HubServer]:
        model = await self._call("GET", f"users/{quote(user, safe='')}", missing_ok=True)
        servers = _servers(model or {})
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
            self._groups.clear()
        self._note_groups(model or {})
        now = self._clock()
        self._known[user] = _Seen(now, now + self._cache_seconds, servers)
        return servers

    def _note_groups(self, model: Mapping[str, Any]) -> None:
        if "groups" in model:
            self._groups[str(model["name"])] = tuple(sorted(str(each) for each in model["groups"]))

    def _believed(self, user: str) -> dict[str, HubServer] | None:
        seen = self._known.get(user, _Seen(0.0, self._absent_until, {}))
        return seen.servers if self._clock() < seen.until else None

    def _many_ask(self) -> bool:
        """Whether one list costs the hub less than going on to ask for each user."""
        since = self._clock() - self._cache_seconds
        while self._asked and self._asked[0] < since:
            self._asked.popleft()
        return len(self._asked) >= max(_FEW, self._listed // _LIST_COST)

    async def _list_once(self) -> None:
        """List all active servers, or wait for the list that is under way."""
        if self._listing is None:
            self._asked.clear()
            self._listing = asyncio.create_task(self._list(), name="list the hub's servers")
            self._listing.add_done_callback(self._list_ended)
        await asyncio.shield(self._listing)

    def _list_ended(self, task: asyncio.Task[object]) -> None:
        self._listing = None
        if not task.cancelled():
            task.exception()  # whoever asked was told, or has gone away

    async def _list(self) -> dict[str, dict[str, HubServer]]:
        """Return the servers of every user who has an active one."""
        began = self._clock()
        self._groups.clear()  # of those who have gone
        found: dict[str, dict[str, HubServer]] = {}
        async for model in self._models("users?state=active&"):
            found[str(model["name"])] = _servers(model)
            self._note_groups(model)
        self._listed = len(found)
        self._absent_until = began + self._cache_seconds
        until = began + CACHE_SECONDS
        self._known = {user: _Seen(began, until, servers) for user, servers in found.items()}
        return found


def starts_servers(model: Mapping[str, Any]) -> bool:
    """Tell whether the token whose model (``GET user``) this is may start people's servers."""
    # JupyterHub 5 has no scope for starting alone.
    held = {str(each).partition("!")[0] for each in model.get("scopes") or ()}
    return bool(held & {"servers", "start:servers"})


def _of_a_run(path: str) -> bool:
    """Whether a refusal concerns one server, not how the service stands with the hub."""
    return "/servers/" in path


def _said(error: HTTPClientError) -> str:
    body = error.response.body if error.response is not None else b""
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""


def _servers(model: dict[str, Any]) -> dict[str, HubServer]:
    return {
        name: HubServer(
            name=name,
            ready=bool(each.get("ready")),
            pending=str(each.get("pending") or ""),
            stopped=bool(each.get("stopped")),
            display_name=str(each.get("display_name") or ""),
            url=str(each.get("url") or ""),
            options=each.get("user_options") or {},
        )
        for name, each in (model.get("servers") or {}).items()
    }
