"""A live copy of one kind of object, and deletes whose effect the copy has yet to show.

The copy is listed once and then watched for ever: it resumes after a cut, lists again when its
version is too old, and backs off while the server is away.  ``problem`` is "" only while a list
succeeded and nothing has failed since.  Deletes of lease pods run in the background, each once as
far as the API server answers: until the watch shows one, a second caller need not ask for it
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from gpulease.channel.timing import BackOff
from gpulease.providers.kubernetes.api.client import (
    PODS,
    ClientError,
    ConflictError,
    GoneError,
    Keep,
    KubernetesAPI,
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
        client: KubernetesAPI,
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
        self._back_off = BackOff(FIRST_WAIT, LONGEST_WAIT)
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
        self._back_off.worked()

    async def _fail(self, error: ClientError, *, warn: bool = True) -> None:
        if warn:
            if not self.problem or self.problem == "not listed yet":
                log.warning("%s cannot be watched: %s", self.resource.plural, error.message)
            self.problem = f"{self.resource.plural}: {error.message}"
        asked = error.retry_after if isinstance(error, UnavailableError) else 0.0
        self._failures += 1
        if self._failures >= LIST_ANEW:
            self._version = ""  # whatever broke there, a new list begins from firm ground
        await asyncio.sleep(self._back_off.pause(asked))


#: Seconds that an ended lease's processes have to end; what was to be brought home is home.
END_GRACE = 15
#: Seconds for which an answered delete is not asked again.  A cluster that was restored from a
#: backup may show the same pod again, as if nobody had asked.
ANSWERED_SECONDS = 60.0
#: Deletes that may be under way at once.
_AT_ONCE = 16


class Deletes:
    """Makes pods go.

    Args:
        clock: monotonic seconds.
    """

    def __init__(
        self, client: KubernetesAPI, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answered: dict[str, float] = {}  # oldest first

    def begin(self, pod: Manifest) -> None:
        """Begin to delete this very pod, unless that was done of late."""
        uid = str(pod["metadata"]["uid"])
        self._begin(uid, lambda: self._delete(key_of(pod), uid))

    def begin_unseen(self, key: Key, gone: Callable[[], None]) -> None:
        """Begin to delete a pod that was created and is not shown yet.

        Args:
            gone: called when there is no such pod any more.
        """
        self._begin("/".join(key), lambda: self._delete(key, "", gone))

    async def close(self) -> None:
        """Let go: a pod that must go is asked for again by the next service."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str, work: Callable[[], Awaitable[bool]]) -> None:
        self._forget()
        if name not in self._tasks and name not in self._answered:
            task = asyncio.create_task(self._run(name, work), name=f"delete {name}")
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _run(self, name: str, work: Callable[[], Awaitable[bool]]) -> None:
        async with self._slots:
            if await work():
                self._answered[name] = self._clock()

    async def _delete(self, key: Key, uid: str, gone: Callable[[], None] = lambda: None) -> bool:
        """Ask once; return whether the pod will go, or is gone."""
        namespace, name = key
        try:
            await self._client.delete(PODS, name, namespace, uid=uid, grace=END_GRACE)
        except NotFoundError:
            gone()
        except ConflictError:
            return True  # another pod has its name: this one is gone
        except ClientError as error:
            # The caller asks again at the next look, if it must still go.
            log.warning("pod %s could not be deleted: %s", name, error.message)
            return False
        return True

    def _forget(self) -> None:
        """Drop what was answered long ago."""
        bound = self._clock() - ANSWERED_SECONDS
        while self._answered:
            oldest = next(iter(self._answered))
            if self._answered[oldest] > bound:
                return
            del self._answered[oldest]
