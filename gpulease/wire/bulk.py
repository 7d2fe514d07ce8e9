"""The streams of a second wire together: the way that pieces take between two machines.

A message of the first wire asks for a piece, and the stream that waits for fewest brings it.  Used
by the wire's thread only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpulease.wire.message import header
from gpulease.wire.stream import Came, Place, Stream

log = logging.getLogger(__name__)


class Bulk:
    """All streams of one meeting; ``post`` sends over the wire."""

    def __init__(
        self, name: str, streams: Sequence[Stream], post: Callable[[list[Any]], None]
    ) -> None:
        self.name = name
        self._streams = list(streams)
        self._post = post
        self._asks: dict[int, list[list[int]]] = {}
        for stream in self._streams:
            stream.start()

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads of all streams."""
        return [thread for stream in self._streams for thread in stream.threads]

    @property
    def broken(self) -> str:
        """Why it is of no use any more; empty while it is."""
        return next((stream.broken for stream in self._streams if stream.broken), "")

    def close(self) -> None:
        """Close all streams: nothing is written to memory by them after this returns."""
        for stream in self._streams:
            stream.close()

    # ---- the receiver

    @property
    def room(self) -> bool:
        """True while another piece may be asked for."""
        return any(stream.room for stream in self._streams)

    def ask(self, offer: int, blob: int, at: int, length: int) -> None:
        """Ask for a piece by the stream that waits for fewest; there must be room."""
        open_ones = [index for index, stream in enumerate(self._streams) if stream.room]
        index = min(open_ones, key=lambda each: self._streams[each].waits)
        self._streams[index].expect(Place(offer, blob, at, length))
        self._asks.setdefault(index, []).append([offer, blob, at])

    def flush(self) -> None:
        """Send what was asked for."""
        asks, self._asks = self._asks, {}
        for index, pieces in asks.items():
            self._post([header(kind="second.fetch", bulk=self.name, stream=index, pieces=pieces)])

    def came(self) -> Iterator[Came]:
        """Yield what has come since."""
        for stream in self._streams:
            while stream.came:
                yield stream.came.popleft()

    # ---- the giver

    def give(self, head: Mapping[str, Any]) -> None:
        """Send what a ``fetch`` asks for."""
        if head["stream"] < len(self._streams):
            for offer, blob, at in head["pieces"]:
                self._streams[head["stream"]].give(Place(offer, blob, at, 0))
