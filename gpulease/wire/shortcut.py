"""The way through shared memory, where both ends of a wire are on one machine.

It handles the meeting before it, its messages and its end, after which pieces travel over the wire
as they would without it.  Nothing is lost by that: what was asked for and had not come is asked for
again.  Used by the wire's thread only.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from gpulease.wire.lane import Lane, LaneError
from gpulease.wire.message import header
from gpulease.wire.near import Calling, Listening, Meeting
from gpulease.wire.pieces import Offers, Pulls
from gpulease.wire.polled import Polled

log = logging.getLogger(__name__)


class Shortcut:
    """At most one lane, and what leads to it.

    ``post`` sends over the wire; ``none`` is called where the client finds that there will be none.
    """

    def __init__(
        self,
        polled: Polled,
        post: Callable[[list[Any]], None],
        offers: Offers,
        pulls: Pulls,
        none: Callable[[], None],
    ) -> None:
        self._polled = polled
        self._post = post
        self._offers = offers
        self._pulls = pulls
        self._none = none
        self._listening: Listening | None = None
        self._calling: Calling | None = None
        self.lane: Lane | None = None

    # ---- the meeting

    def listen(self) -> None:
        """Let the server find this process, if it is on this machine (client)."""
        try:
            self._listening = Listening()
        except OSError as error:
            log.info("transfer wire: no shared memory here: %s", error)
            self._none()
            return
        meeting = self._listening.meeting
        self._polled.open(self._listening.fileno(), self._called)
        fields = {"name": meeting.name, "call": meeting.call, "answer": meeting.answer}
        self._post([header(kind="near", **fields)])

    def call(self, head: dict[str, Any]) -> None:
        """Look for the client on this machine (server)."""
        self.close()
        try:
            self._calling = Calling(Meeting.from_header(head))
        except OSError as error:
            log.info("transfer wire: its other end is not in reach of shared memory: %s", error)
            self._post([header(kind="far")])
            return
        self._polled.open(self._calling.fileno(), self._answered)

    def far(self) -> None:
        """The server cannot be met (client)."""
        if self._listening is not None:
            log.info("transfer wire: its other end is not in reach of shared memory")
            self._stop_listening()
            self._none()

    def _called(self) -> None:
        assert self._listening is not None
        caller = self._listening.accept()
        if caller is not None:
            self._polled.open(caller.fileno(), partial(self._hear, caller))

    def _hear(self, caller: socket.socket) -> None:
        assert self._listening is not None
        self._polled.shut(caller.fileno())
        lane = self._listening.hear(caller)
        if lane is not None:
            self._stop_listening()
            self._use(lane)

    def _stop_listening(self) -> None:
        assert self._listening is not None
        files = [caller.fileno() for caller in self._listening.callers]
        for file in (self._listening.fileno(), *files):
            self._polled.shut(file)
        self._listening.close()
        self._listening = None

    def _answered(self) -> None:
        assert self._calling is not None
        self._polled.shut(self._calling.fileno())
        lane = self._calling.hear()
        self._calling = None
        if lane is not None:
            self._use(lane)

    # ---- the lane

    def _use(self, lane: Lane) -> None:
        log.info("transfer wire: values travel through shared memory")
        self.lane = lane
        self._polled.open(lane.fileno(), partial(self._messages, lane))
        self._pulls.use(lane)

    def _messages(self, lane: Lane) -> None:
        try:
            for said in lane.messages():
                if said.asks:
                    self._offers.put_into(lane, said)
                else:
                    self._pulls.given(lane, said)
        except LaneError as error:
            # As when the other process ends: a warning would stand under a cell.
            log.info("transfer wire: no shared memory any more: %s", error)
            self._end_lane()

    def _end_lane(self) -> None:
        if self.lane is not None:
            lane, self.lane = self.lane, None
            self._polled.shut(lane.fileno())
            lane.close()
            self._pulls.leave(lane)

    # ---- both

    def close(self) -> None:
        """End all of it."""
        if self._listening is not None:
            self._stop_listening()
        if self._calling is not None:
            self._polled.shut(self._calling.fileno())
            self._calling.close()
            self._calling = None
        self._end_lane()
