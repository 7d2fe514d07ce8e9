"""Looks at a site all the time and once it is at rest, and keeps what was wrong."""

import asyncio
import sqlite3
import time
from collections.abc import Callable

from testcluster.api import ApiError
from testcluster.faults import invariants
from testcluster.faults.picture import Picture, look
from testcluster.site.site import Site

REST_SECONDS = 60.0
#: Its own bound (seconds) has a node that is not ready: rest is counted from when it is.
NODE_SECONDS = 120.0
#: For so long the kubelet's books may differ from the node: it reads them again when it starts.
BOOKS_SECONDS = 15.0
_AWAY = (OSError, ApiError, sqlite3.OperationalError)


class Watchman:
    """Looks at the site all the time and writes down what must never be, or not for long."""

    def __init__(
        self, take_picture: Callable[[], Picture], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._take_picture = take_picture
        self._clock = clock
        self._since: dict[str, float] = {}
        self.wrong: list[str] = []
        self.looks = 0
        #: Looks at which the kubelet said that somebody has a device.
        self.looks_in_the_books = 0

    def take(self) -> list[str]:
        """Return what was wrong since the last call, each once."""
        found, self.wrong = list(dict.fromkeys(self.wrong)), []
        return found

    async def watch(self) -> None:
        """Look until cancelled; what is away is looked at later."""
        while True:
            try:
                self.see(await asyncio.to_thread(self._take_picture))
            except _AWAY:
                # Whoever could have put it right was away, too: its time begins anew.
                self._since.clear()
            await asyncio.sleep(0.5)

    def see(self, seen: Picture) -> None:
        """Judge one picture."""
        self.looks += 1
        self.looks_in_the_books += bool(seen.held)
        self.wrong += invariants.always(seen)
        strays, miscounts = invariants.strays(seen), invariants.miscounts(seen)
        now = self._clock()
        passing = {**strays, **miscounts}
        self._since = {what: self._since.get(what, now) for what in passing}
        for what, since in self._since.items():
            most = BOOKS_SECONDS if what in miscounts else REST_SECONDS
            if now - since > most:
                self.wrong.append(f"for over {most:g} s: {passing[what]}")


async def settle(site: Site) -> tuple[float, list[str]]:
    """Wait until nothing is leased and no GPU pod is left.

    Returns the seconds it took, and what was not at rest in time.
    """
    began = time.monotonic()
    ready = began  # since when the node is, as far as is known
    left = ["nothing could be seen"]
    while True:
        now = time.monotonic()
        if now - ready > REST_SECONDS or now - began > NODE_SECONDS + REST_SECONDS:
            return now - began, left
        try:
            seen = await asyncio.to_thread(look, site)
        except _AWAY as error:
            left = [f"it could not be seen: {error}"]
        else:
            left = invariants.at_rest(seen)
            if not left:
                return time.monotonic() - began, []
            if not seen.node_ready and now - began < NODE_SECONDS:
                ready = time.monotonic()
        await asyncio.sleep(0.5)
