"""The second wire, for large values between two machines: whether there is one, and its end.

The client asks for it where no shared memory is in reach, the server says where it listens and
with which keys, all over the first wire.  One that cannot be reached, as behind a firewall, or
breaks costs only time: pieces travel over the first wire then, also those that were asked for and
had not come.  Used by the wire's thread only.
"""

from __future__ import annotations

import collections
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from gpulease.wire import door, seal
from gpulease.wire.bulk import Bulk
from gpulease.wire.door import Listening, Proved, StreamKeys
from gpulease.wire.message import header
from gpulease.wire.pieces import Offers, Pulls
from gpulease.wire.polled import Polled
from gpulease.wire.stream import Stream

log = logging.getLogger(__name__)

#: How often a second wire that breaks is made anew.
_TRIES = 3
_NOT_INSTALLED = "the package cryptography is not installed"


class Second:
    """At most one set of streams, and what leads to it.

    Args:
        polled: where the listening end is looked at.
        post: sends over the first wire.
        kick: wakes the wire's thread, which calls ``look``.
        offers: what the streams give.
        pulls: what they bring.
    """

    def __init__(
        self,
        polled: Polled,
        post: Callable[[list[Any]], None],
        kick: Callable[[], None],
        offers: Offers,
        pulls: Pulls,
    ) -> None:
        self._polled = polled
        self._post = post
        self._kick = kick
        self._offers = offers
        self._pulls = pulls
        self._host = ""
        self._port: int | None = None
        self._listening: Listening | None = None
        self._calls: collections.deque[tuple[str, list[Proved] | OSError]] = collections.deque()
        #: The meeting that goes on, or the one that the streams are of.
        self._name = ""
        self._tries = _TRIES
        self.bulk: Bulk | None = None
        #: Why there is none, where one was wanted: for a person.
        self.why_not = ""

    def at(self, address: str, port: int | None = None) -> None:
        """Take the first wire's address; ``port`` is the server's to listen on (None: never)."""
        self._host, self._port = urlsplit(address).hostname or "", port

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads of the streams."""
        bulk = self.bulk
        return [] if bulk is None else bulk.threads

    def hear(self, head: dict[str, Any]) -> None:
        """Do what a message says, if it is of this meeting."""
        kind = head["kind"]
        if kind == "second":
            self._listen()
        elif kind == "second.door":
            self._call(head)
        elif kind == "second.no_door":
            self._have_none(head["why"])
        elif head["bulk"] != self._name:
            log.debug("transfer wire: %s of a second wire that has ended", kind)
        elif kind == "second.unreached" or (kind == "second.cut" and self.bulk is None):
            self._stop_listening()
        elif kind == "second.cut":
            self._end("the other side ended it")
        elif self.bulk is not None and kind == "second.ready":
            self._pulls.use(self.bulk)
        elif self.bulk is not None:
            self.bulk.give(head)

    def look(self) -> None:
        """Enter what the streams have brought, and what became of a call."""
        while self._calls:
            self._called(*self._calls.popleft())
        bulk = self.bulk
        if bulk is None:
            return
        why = bulk.broken  # first: what came before it broke is there
        self._pulls.brought(bulk, bulk.came())
        if why:
            self._end(why)

    def close(self) -> None:
        """End all of it."""
        self._name = ""
        self._hang_up()
        self._stop_listening()
        if self.bulk is not None:
            bulk, self.bulk = self.bulk, None
            bulk.close()
            self._pulls.leave(bulk)

    # ---- the server

    def _listen(self) -> None:
        self.close()
        why = "" if seal.available() else _NOT_INSTALLED
        if self._port is None:
            why = "no port is free for it"
        elif not why:
            try:
                self._listening = Listening(self._host, self._port, door.how_many())
            except OSError as error:
                why = f"its port cannot be listened on ({error.strerror or error})"
        if self._listening is None:
            self._have_none(why)
            self._post([header(kind="second.no_door", why=why)])
            return
        self._name = secrets.token_hex(8)
        self._polled.open(self._listening.fileno(), self._somebody)
        keys = [each.to_json() for each in self._listening.keys]
        self._post(
            [header(kind="second.door", bulk=self._name, port=self._listening.port, keys=keys)]
        )

    def _somebody(self) -> None:
        assert self._listening is not None
        caller, oldest = self._listening.accept()
        if oldest is not None:
            self._polled.shut(oldest.fileno())
            self._listening.drop(oldest)
        if caller is not None:
            self._polled.open(caller.fileno(), partial(self._said, caller, caller.fileno()))

    def _said(self, caller: Any, file: int) -> None:
        assert self._listening is not None
        if self._listening.hear(caller):
            self._polled.shut(file)
        if self._listening.complete:
            listening = self._listening
            self._unpoll(listening)
            self._listening = None
            self._use(listening.take())

    def _unpoll(self, listening: Listening) -> None:
        for file in (listening.fileno(), *(caller.fileno() for caller in listening.callers)):
            self._polled.shut(file)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._unpoll(self._listening)
            self._listening.close()
            self._listening = None

    # ---- the client

    def ask(self) -> None:
        """Ask for a second wire (client)."""
        if not seal.available():
            self._have_none(_NOT_INSTALLED)
        elif self._tries:
            self._tries -= 1
            self._post([header(kind="second")])

    def _call(self, head: dict[str, Any]) -> None:
        self.close()
        try:
            port, keys = door.read_door(head)
        except ValueError:
            log.warning("transfer wire: no door of a second wire")
            return
        self._name = head["bulk"]
        threading.Thread(
            target=self._reach, args=(self._name, port, keys), name="gpulease-bulk-call",
            daemon=True,
        ).start()  # fmt: skip

    def _reach(self, name: str, port: int, keys: Sequence[StreamKeys]) -> None:
        """Call the server, on a thread of its own: a firewall may let it wait."""
        found: list[Proved] | OSError
        try:
            found = door.call(self._host, port, keys)
        except OSError as error:
            found = error
        self._calls.append((name, found))
        if name == self._name:
            self._kick()
        else:  # this end closed meanwhile, and may look no more
            self._hang_up()

    def _hang_up(self) -> None:
        """Close the connections of calls that are of no use any more; any thread may do it."""
        for each in [*self._calls]:
            if each[0] != self._name and isinstance(each[1], list):
                for one, _ in each[1]:
                    one.close()

    def _called(self, name: str, found: list[Proved] | OSError) -> None:
        if isinstance(found, OSError):
            if name == self._name:
                self._have_none(f"its port cannot be reached ({found.strerror or found})")
                self._post([header(kind="second.unreached", bulk=name)])
        elif name == self._name:
            self._use(found)
            self._post([header(kind="second.ready", bulk=name)])
            assert self.bulk is not None
            self._pulls.use(self.bulk)

    # ---- both

    def _use(self, proved: Sequence[Proved]) -> None:
        log.info("transfer wire: large values travel by %s sealed streams", len(proved))
        self.why_not = ""
        streams = [
            Stream(one, seals, self._offers.lend, self._pulls.target, self._kick)
            for one, seals in proved
        ]
        self.bulk = Bulk(self._name, streams, self._post)

    def _end(self, why: str) -> None:
        log.info("transfer wire: the second wire has ended: %s", why)
        name, client = self._name, self._port is None
        self.close()
        self._post([header(kind="second.cut", bulk=name)])
        if client:
            self.ask()

    def _have_none(self, why: str) -> None:
        if why != self.why_not:
            log.info(
                "transfer wire: large values travel by CurveZMQ, without a second wire: %s", why
            )
        self.why_not = why
