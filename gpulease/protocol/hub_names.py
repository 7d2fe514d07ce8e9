"""How people and groups of several hubs on one service are called, so that none is another's.

What belongs to the first hub is called as it is there.  What belongs to a further hub ``lab2`` is
``lab2/NAME``.  That no two users meet follows from JupyterHub: it lets no user's name hold a slash.
Groups may hold slashes, so of the first hub's groups none is believed that is called as one of a
further hub would be (``owns``).  All of a hub are in one group more, ``lab2/``, and ``/`` of the
first: what is said of a whole hub (its share, its admins) is said of this group.
Where there is one hub alone, no name is changed and no group is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpulease.errors import GPULeaseError

#: Services are ``service/NAME`` beside users, so no hub is called so.
SERVICE = "service"
#: Characters of a user's name with its hub's, as the store keeps them.
MOST = 255
#: It stands in addresses, environment variables and YAML without quotes.
_HUB = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


def is_hub_name(text: str) -> bool:
    """Tell whether a further hub may be called so."""
    return _HUB.fullmatch(text) is not None and text != SERVICE


def split(user: str) -> tuple[str, str]:
    """Return the hub of a user ("" is the first) and the name there."""
    hub, slash, name = user.partition("/")
    return (hub, name) if slash and is_hub_name(hub) else ("", user)


@dataclass(frozen=True)
class HubNames:
    """The names of one hub's people and groups, as the service calls them.

    Attributes:
        hub: which; "" is the first.
        further: the names of all further hubs; none where the first is alone.
    """

    hub: str = ""
    further: frozenset[str] = frozenset()

    @property
    def everyone(self) -> str:
        """The group of all of this hub, "" where there is no other hub."""
        return f"{self.hub}/" if self.further else ""

    def user(self, name: str) -> str:
        """Return what the service calls a user.

        Raises:
            GPULeaseError: ``bad_name`` (403): it could be another's, or is too long to be kept.
        """
        found = self.known(name)
        if not found:
            raise GPULeaseError(
                "bad_name",
                "Nobody of this name can be told from the users of the other hubs here.",
                next_step="Ask an admin for another user name: without a slash, and shorter.",
            )
        return found

    def known(self, name: str) -> str:
        """Return what the service calls a user, "" for one whom it does not let in."""
        found = f"{self.hub}/{name}" if self.hub else name
        return "" if self.further and ("/" in name or len(found) > MOST) else found

    def owns(self, group: str) -> bool:
        """Tell whether a group, as the service calls it, is one of this hub."""
        before, slash, _ = group.partition("/")
        return (before if slash and before in self.further else "") == self.hub

    def group(self, name: str) -> str:
        """Return what the service calls a group, "" for one that is not believed."""
        found = f"{self.hub}/{name}" if self.hub else name
        return found if name and found != self.everyone and self.owns(found) else ""

    def groups(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return what the service calls the groups of one of this hub's people, sorted."""
        found = {self.group(name) for name in names} | {self.everyone}
        return tuple(sorted(found - {""}))

    def local(self, group: str) -> str:
        """Return what this hub calls a group of its own."""
        return group.removeprefix(f"{self.hub}/") if self.hub else group


#: Of a hub that has the service for itself.
ONE_HUB = HubNames()
