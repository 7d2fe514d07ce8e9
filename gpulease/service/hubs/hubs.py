"""All hubs of a service: whom to ask about whom, and what is known while one of them is away.

The service's names of people and groups lead to the hub that has them, and back.  A hub that does
not answer keeps nobody of another one waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any

from gpulease.protocol.hub_names import HubNames, split
from gpulease.service.hubs.api import HubAPI, HubServer, HubUnreachableError

log = logging.getLogger(__name__)

_NONE: Mapping[str, HubAPI] = {}


class Hubs:
    """The hubs by name; "" is the first.

    Whose hub is not among them (it was taken out of the configuration) has no server.

    Args:
        first: the hub whose service this is.
        further: others that use it, too.
    """

    def __init__(self, first: HubAPI, further: Mapping[str, HubAPI] = _NONE) -> None:
        self._hubs = {"": first, **further}
        names = frozenset(further)
        self._names = {hub: HubNames(hub, names) for hub in self._hubs}
        self._several = bool(further)
        self._looking: dict[str, asyncio.Task[None]] = {}  # at hubs that were away

    @property
    def problem(self) -> str:
        """What is wrong with the first hub, "" when nothing is."""
        return self._hubs[""].problem

    def further(self) -> dict[str, str]:
        """Return what is wrong with each further hub, "" where nothing is."""
        return {name: api.problem for name, api in self._hubs.items() if name}

    async def servers(self, user: str, *, fresh: bool = False) -> dict[str, HubServer]:
        """Return the servers of a user by name; empty when the hub has no such user.

        Raises:
            HubUnreachableError: the user's hub did not answer.
        """
        hub, name = self._of(user)
        return await self._hubs[hub].servers(name, fresh=fresh) if hub in self._hubs else {}

    def seen(self, user: str) -> dict[str, HubServer]:
        """Return the servers of a user as they were seen last, empty after a while."""
        hub, name = self._of(user)
        return self._hubs[hub].seen(name) if hub in self._hubs else {}

    async def server_active(self, user: str, server: str) -> bool:
        """Tell whether this server runs or starts."""
        hub, name = self._of(user)
        return hub in self._hubs and await self._hubs[hub].server_active(name, server)

    async def knows(self, user: str, server: str) -> bool:
        """Tell whether the user's hub has this server, be it stopped."""
        hub, name = self._of(user)
        return hub in self._hubs and await self._hubs[hub].knows(name, server)

    def groups_of(self, user: str) -> tuple[str, ...] | None:
        """Return a user's groups as the last answer about them said, ``None`` for unknown."""
        hub, name = self._of(user)
        known = self._hubs[hub].groups_of(name) if hub in self._hubs else None
        return None if known is None else self._names[hub].groups(known)

    def sure_groups_of(self, user: str) -> tuple[str, ...]:
        """Return the groups that a user is in whatever their hub says."""
        hub, _ = self._of(user)
        return self._names[hub].groups(()) if hub in self._hubs else ()

    async def look(self) -> None:
        """Ask every hub who we are: what is wrong is then of now.

        Raises:
            HubUnreachableError: no hub answered.
        """
        await self._each(set(self._hubs), lambda hub: self._hubs[hub].look())

    async def running(self, users: Iterable[str]) -> dict[str, dict[str, HubServer]]:
        """Return the servers of these users, as far as their hubs answer.

        Hubs of which nobody is asked for are looked at, so that ``further`` is of now.

        Raises:
            HubUnreachableError: no hub answered.
        """
        wanted: dict[str, dict[str, str]] = {}  # by hub: what the service calls its users
        found: dict[str, dict[str, HubServer]] = {}
        for user in users:
            hub, name = self._of(user)
            if hub in self._hubs:
                wanted.setdefault(hub, {})[name] = user
            else:
                found[user] = {}

        async def ask(hub: str) -> None:
            if hub not in wanted:
                await self._hubs[hub].look()
                return
            servers = await self._hubs[hub].running(wanted[hub])
            found.update({wanted[hub][name]: each for name, each in servers.items()})

        await self._each(set(self._hubs) if self._several else set(wanted), ask)
        return found

    async def members(self, group: str) -> list[str]:
        """Return the names of a group's members, sorted; empty when there is no such group.

        Raises:
            HubUnreachableError: the group's hub did not answer.
        """
        names = next(each for each in self._names.values() if each.owns(group))
        api = self._hubs[names.hub]
        whole = group == names.everyone
        found = await (api.users() if whole else api.members(names.local(group)))
        return [known for name in found if (known := names.known(name))]

    async def groups(self, of: HubNames | None = None) -> list[str]:
        """Return the names of all groups of one hub, or of all that answer, sorted.

        Raises:
            HubUnreachableError: no hub answered.
        """
        found: set[str] = set()

        async def ask(hub: str) -> None:
            found.update(self._names[hub].groups(await self._hubs[hub].groups()))

        await self._each({of.hub} if of is not None else set(self._hubs), ask)
        return sorted(found)

    async def refresh_activity(self, user: str, server: str, at: datetime) -> None:
        """Tell the user's hub that this server was used, so that its culler leaves it alone.

        Raises:
            HubUnreachableError: it did not answer, or has not of late.
        """
        hub, name = self._of(user)
        if hub not in self._hubs:
            return
        if self._several and self._hubs[hub].problem:
            raise HubUnreachableError(self._said(hub))
        await self._hubs[hub].refresh_activity(name, server, at)

    async def may_start_servers(self, user: str) -> bool:
        """Tell whether the service's role at the user's hub lets it start servers.

        Raises:
            HubUnreachableError: the hub did not answer.
        """
        hub, _ = self._of(user)
        return hub in self._hubs and await self._hubs[hub].may_start_servers()

    async def start_server(self, user: str, server: str, options: Mapping[str, Any]) -> None:
        """Have a named server of a user started; it need not be there when this returns.

        Raises:
            HubRefusedError: the hub will not.
            HubUnreachableError: the hub did not answer.
        """
        hub, name = self._of(user)
        await self._known(hub).start_server(name, server, options)

    async def remove_server(self, user: str, server: str) -> bool:
        """Have a named server stopped and removed; tell whether it is gone.

        Raises:
            HubUnreachableError: the hub did not answer, or will not.
        """
        hub, name = self._of(user)
        return await self._known(hub).remove_server(name, server)

    def _of(self, user: str) -> tuple[str, str]:
        return split(user) if self._several else ("", user)

    def _known(self, hub: str) -> HubAPI:
        if hub not in self._hubs:
            raise HubUnreachableError(f"no hub is called {hub}")
        return self._hubs[hub]

    def _said(self, hub: str) -> str:
        return f"hub {hub}: {self._hubs[hub].problem}" if hub else self._hubs[hub].problem

    async def _each(self, hubs: set[str], ask: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Ask some hubs at once; one that is away is looked at beside, and nobody waits for it.

        Raises:
            HubUnreachableError: none of them answered.
        """
        there = {hub for hub in hubs if not (self._several and self._hubs[hub].problem)}
        for hub in hubs - there:
            self._look_beside(hub)
        answers = await asyncio.gather(*(ask(hub) for hub in sorted(there)), return_exceptions=True)
        failed = [each for each in answers if isinstance(each, BaseException)]
        for error in failed:
            if not isinstance(error, HubUnreachableError):
                raise error
        if failed or there != hubs:
            said = "; ".join(self._said(hub) for hub in sorted(hubs) if self._hubs[hub].problem)
            if len(failed) == len(there):
                raise failed[0] if len(hubs) == 1 and failed else HubUnreachableError(said)
            log.warning("nothing is concluded of a hub that is away: %s", said)

    def _look_beside(self, hub: str) -> None:
        """See whether a hub is back, without waiting for it."""
        if hub in self._looking:
            return
        task = asyncio.create_task(self._hubs[hub].look(), name=f"look at hub {hub}")
        self._looking[hub] = task
        task.add_done_callback(lambda done: self._looked(hub, done))

    def _looked(self, hub: str, task: asyncio.Task[None]) -> None:
        del self._looking[hub]
        if not task.cancelled():
            task.exception()  # it stands in ``problem``
