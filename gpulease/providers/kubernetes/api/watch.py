"""A live copy of one kind of object: list once, then watch, for ever.

Owns resuming after a cut, listing anew when the version is too old, and the back-off while the
server is away.  It says when it cannot be trusted: ``problem`` is "" only while a list succeeded
and nothing has failed since.  Refuses to know what the objects mean; ``keep`` makes them smaller.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable

from gpulease.providers.kubernetes.api.client import (
    Client,
    ClientError,
    GoneError,
    Keep,
    Manifest,
    NotFoundError,
    Resource,
    UnavailableError,
    WatchEvent,
    whole,
)

log = logging.getLogger(__name__)

#: Seconds of one watch; then it goes on from where it was.  It bounds how long a connection that
#: died without a word is believed.
WATCH_SECONDS = 30
#: First and longest wait (seconds) after a failure.
FIRST_WAIT, LONGEST_WAIT = 0.25, 15.0
_JITTER = 0.5
#: After so many failures in a row everything is listed anew.
LIST_ANEW = 5

#: Namespace and name.
Key = tuple[str, str]


def key_of(manifest: Manifest) -> Key:
    """Return namespace and name of an object."""
    meta = manifest.get("metadata") or {}
    return str(meta.get("namespace", "")), str(meta.get("name", ""))


class Watched:
    """The objects of one collection as the server last told.

    Args:
        keep: makes an object smaller; ``None`` leaves it out.
        changed: called after each change: with the old and the new object (either may be ``None``).
        optional: the cluster may lack this collection; then it is empty, and no problem.
        streamed: there are so many that a list in pages costs too much.
        seconds: how long one watch lasts.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        keep: Keep = whole,
        changed: Callable[[Manifest | None, Manifest | None], None] = lambda *_: None,
        optional: bool = False,
        streamed: bool = False,
        seconds: int = WATCH_SECONDS,
    ) -> None:
        self.resource = resource
        self.objects: dict[Key, Manifest] = {}
        self.problem = "not listed yet"
        self.lists = 0
        self._client = client
        self._namespace = namespace
        self._labels, self._fields = labels, fields
        self._keep = keep
        self._changed = changed
        self._optional = optional
        self._streamed = streamed
        self._seconds = seconds
        self._version = ""
        self._failures = 0
        self._synced = asyncio.Event()

    async def synced(self) -> None:
        """Return once everything was listed."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep the copy, until cancelled."""
        while True:
            try:
                await self._step()
            except GoneError as error:
                # Not a failure of the server: the version is only too old to go on from.
                log.info("%s are listed again: %s", self.resource.plural, error.message)
                self._version = ""
                await self._fail(error, warn=False)
            except NotFoundError as error:
                if not self._optional:
                    await self._fail(error)
                else:
                    self._replace([], "")
                    self._version = ""
                    await asyncio.sleep(LONGEST_WAIT)
            except ClientError as error:
                await self._fail(error)

    async def _step(self) -> None:
        """List if need be, then watch once."""
        if not self._version:
            found = await self._client.list_all(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                keep=self._keep,
                streamed=self._streamed,
            )
            self.lists += 1
            self._replace(found.items, found.version)
        async for event in self._client.watch(
            self.resource,
            self._namespace,
            since=self._version,
            labels=self._labels,
            fields=self._fields,
            seconds=self._seconds,
        ):
            self._take(event)

    def _take(self, event: WatchEvent) -> None:
        self._version = event.version or self._version
        self._well()
        if event.kind in ("OPENED", "BOOKMARK"):
            return
        kept = None if event.kind == "DELETED" else self._keep(event.object)
        self._put(key_of(event.object), kept)

    def _replace(self, items: Iterable[Manifest], version: str) -> None:
        found = {key_of(item): item for item in items}
        for key in self.objects.keys() - found.keys():
            self._put(key, None)
        for key, manifest in found.items():
            self._put(key, manifest)
        self._version = version
        self._well()
        self._synced.set()

    def _put(self, key: Key, kept: Manifest | None) -> None:
        before = self.objects.get(key)
        if kept is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = kept
        if before is not None or kept is not None:
            self._changed(before, kept)

    def _well(self) -> None:
        self.problem = ""
        self._failures = 0

    async def _fail(self, error: ClientError, *, warn: bool = True) -> None:
        if warn:
            if not self.problem or self.problem == "not listed yet":
                log.warning("%s cannot be watched: %s", self.resource.plural, error.message)
            self.problem = f"{self.resource.plural}: {error.message}"
        asked = error.retry_after if isinstance(error, UnavailableError) else 0.0
        wait = back_off(self._failures, asked, random.uniform(-1.0, 1.0))
        self._failures += 1
        if self._failures >= LIST_ANEW:
            self._version = ""  # whatever broke there, a new list begins from firm ground
        await asyncio.sleep(wait)


def back_off(failures: int, asked: float, draw: float) -> float:
    """Return the seconds to wait after a failure.

    Args:
        failures: how many came before it in a row; a server may be away for days.
        asked: seconds that the server asked for.
        draw: -1 to 1, by chance, so that not everybody comes back to a restarted server at once.
    """
    doublings = min(failures, math.ceil(math.log2(LONGEST_WAIT / FIRST_WAIT)))
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0**doublings)
    return max(asked, wait * (1.0 + _JITTER * draw))
