"""Deletes lease pods, in the background, each once as far as the API server answers.

Owns which deletes are under way and which were answered: the watch, or a new list, shows those in a
moment, and until then whoever still sees the pod need not ask again.  Refuses to decide whether a
pod should go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from gpulease.providers.kubernetes.api.client import (
    PODS,
    Client,
    ClientError,
    ConflictError,
    Manifest,
    NotFoundError,
)
from gpulease.providers.kubernetes.api.watch import Key, key_of

log = logging.getLogger(__name__)

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

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
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
        """Let go: whoever wants a pod gone asks the next service."""
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
            # Whoever wants it gone asks again at the next look.
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
