"""Live events: what changed, numbered, for pages and for notebook servers.

A resume id that is too old, or of an earlier service, gets the whole snapshot: a reconnect is
always complete.  A server's own channel gets everything at once; a page, which may show
hundreds of leases, gets at once all but figures that only move.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from gpulease.policy.model import Lease, LeaseState
from gpulease.protocol.service import ClassView, LeaseView, MessageView
from gpulease.service.hubs.auth import Asker
from gpulease.service.leases.views import with_detail

#: Changes that a resume can bridge.
_KEPT = 2000
_CLASSES = ""
#: What moves all the time and decides nothing by itself.
FIGURES = frozenset({"utilisation", "memory_used", "busy_share", "ends_at"})
#: Seconds between two messages to a page in which nothing but figures of one lease moved.
FIGURES_EVERY = 5.0
#: Seconds between two messages of what is free: all who read are told, also where hundreds ask.
CLASSES_EVERY = 1.0
#: Seconds by which the end of an idle lease may waver: each look counts whole seconds anew.
_WAVER = 2.0


class Sink(Protocol):
    """Where a reader's messages go."""

    def send(self, message: dict[str, Any]) -> None:
        """Queue one message, which nobody changes: others may get the same.

        A reader that does not keep up is dropped by the sink.
        """

    def close(self) -> None:
        """Hang up at shutdown; the reader comes back and resumes."""


@dataclass(eq=False)
class EventReader:
    """One open events channel.

    Attributes:
        asker: who reads.
        sink: where to.
        server: the proved server whose own channel this is; ``None`` for a page.
    """

    asker: Asker
    sink: Sink
    server: str | None = None
    seen: set[str] = field(default_factory=set)

    def sees(self, lease: Lease) -> bool:
        """Tell whether a lease is this reader's to see."""
        if self.server is not None:
            return (lease.user, lease.server) == (self.asker.name, self.server)
        return self.asker.may_see(lease.user, lease.groups)


@dataclass(frozen=True)
class Shown:
    """A lease with its view, as last published; and what pages were told last, and when.

    ``made``: the view as it was given, which is given again while nothing of it changed.
    """

    lease: Lease
    view: LeaseView
    paged: LeaseView
    paged_at: float
    made: LeaseView


@dataclass(eq=False)
class Events:
    """All readers and the changes of late.

    Args:
        granted: adds the grant to a view, for a server's own channel.
        clock: monotonic, seconds.
        messages: what somebody is shown now.
    """

    granted: Callable[[Lease, LeaseView], LeaseView]
    clock: Callable[[], float] = time.monotonic
    messages: Callable[[Asker], list[MessageView]] = lambda _: []

    def __post_init__(self) -> None:
        # Ids of an earlier service are far below: such a resume is answered by a snapshot.
        self._id = time.time_ns() // 1000
        self._first = self._id
        self._changes: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._readers: set[EventReader] = set()
        #: Of those who see nobody else's leases, by user and server; ``None`` is a page.
        self._own: dict[tuple[str, str | None], set[EventReader]] = {}
        self._wide: set[EventReader] = set()  # of those who may see more
        self._said: tuple[LeaseView, dict[str, Any]] | None = None
        self._shown: dict[str, Shown] = {}
        self._of: dict[str, dict[str, None]] = {}  # the leases of each person that are shown
        self._classes: list[ClassView] = []
        self._classes_told: tuple[list[ClassView], float] = ([], -math.inf)

    @property
    def readers(self) -> frozenset[EventReader]:
        """The open channels."""
        return frozenset(self._readers)

    def join(self, reader: EventReader, resume: int | None) -> None:
        """Open a channel: a snapshot, or what changed since ``resume``."""
        self._readers.add(reader)
        place = _place(reader)
        (self._wide if place is None else self._own.setdefault(place, set())).add(reader)
        if resume is None or not self._bridges(resume):
            self.tell_all(reader)
            return
        changed = dict.fromkeys(key for at, key in self._changes if at > resume)
        if not self._shown.keys() >= changed.keys() - {_CLASSES}:
            self.tell_all(reader)  # what has gone meanwhile cannot be told
            return
        for key in changed:
            self._send(reader, key)
        if not changed:
            reader.sink.send(self._told_classes())
        self._tell_messages(reader)

    def tell_all(self, reader: EventReader) -> None:
        """Send one reader everything again."""
        reader.sink.send(self._snapshot(reader))

    def tell_messages(self) -> None:
        """Tell every reader which messages are shown now."""
        for reader in list(self._readers):
            self._tell_messages(reader)

    def leave(self, reader: EventReader) -> None:
        """Close a channel."""
        self._readers.discard(reader)
        self._wide.discard(reader)
        place = _place(reader)
        if place is not None and place in self._own:
            self._own[place].discard(reader)
            if not self._own[place]:
                del self._own[place]

    def is_final(self, lease: Lease) -> bool:
        """Whether this very record is shown and nothing of it will change any more."""
        known = self._shown.get(lease.id)
        return known is not None and known.lease is lease and lease.state is LeaseState.ENDED

    def view_of(self, lease: Lease) -> LeaseView | None:
        """Return the view of this very record as everybody was told it, if it is the newest."""
        known = self._shown.get(lease.id)
        return known.view if known is not None and known.lease is lease else None

    def publish(self, lease: Lease, view: LeaseView) -> None:
        """Tell the readers of a lease if its view changed, or the words that admins read."""
        now = self.clock()
        known = self._shown.get(lease.id)
        if known is None:
            self._shown[lease.id] = Shown(lease, view, view, now, view)
            self._of.setdefault(lease.user, {})[lease.id] = None
            self._changed(lease.id)
            return
        due = now - known.paged_at >= FIGURES_EVERY
        if lease is known.lease and view is known.made and not (due and known.paged != known.view):
            return  # nothing happened to it
        made, view = view, _steady(known.view, view)
        words = (known.lease.attempt, known.lease.detail) != (lease.attempt, lease.detail)
        pages = (due and view != known.paged) or words or not _only_figures(known.paged, view)
        if pages:
            self._shown[lease.id] = Shown(lease, view, view, now, made)
        else:
            self._shown[lease.id] = replace(known, lease=lease, view=view, made=made)
        if pages or view != known.view:
            self._changed(lease.id, pages=pages)

    def publish_classes(self, classes: list[ClassView]) -> None:
        """Tell everybody what is free, if that changed; what comes too soon waits for the next."""
        self._classes = classes
        told, at = self._classes_told
        now = self.clock()
        if classes != told and now - at >= CLASSES_EVERY:
            self._classes_told = classes, now
            self._changed(_CLASSES)

    def forget(self, kept: set[str]) -> None:
        """Drop leases that ended long ago from later snapshots."""
        for lease_id in self._shown.keys() - kept:
            user = self._shown.pop(lease_id).lease.user
            del self._of[user][lease_id]
            if not self._of[user]:
                del self._of[user]

    def _bridges(self, resume: int) -> bool:
        if resume < self._first or resume > self._id:
            return False
        return resume == self._id or (bool(self._changes) and self._changes[0][0] <= resume + 1)

    def _changed(self, key: str, *, pages: bool = True) -> None:
        self._id += 1
        self._changes.append((self._id, key))
        shown = self._shown.get(key)
        if shown is None:
            told = self._told_classes()
            for reader in list(self._readers):
                reader.sink.send(told)
            return
        # What a change costs follows who sees it, not who reads.
        user = shown.lease.user
        of_pages = (*self._own.get((user, None), ()), *self._wide) if pages else ()
        for reader in (*of_pages, *self._own.get((user, shown.lease.server), ())):
            self._send(reader, key)

    def _send(self, reader: EventReader, key: str) -> None:
        """Tell one reader of one change; ``key`` is a lease or the classes."""
        shown = self._shown.get(key)
        if key == _CLASSES:
            reader.sink.send(self._told_classes())
        elif shown is not None and reader.sees(shown.lease):
            reader.sink.send(self._told(self._view(reader, shown)))

    def _told(self, view: LeaseView) -> dict[str, Any]:
        """Return the message of a view: one for all who get the same, so written once."""
        if self._said is None or self._said[0] is not view or self._said[1]["id"] != self._id:
            told = {**_now(), "type": "lease", "id": self._id, "lease": view}
            self._said = view, told
        return self._said[1]

    def _tell_messages(self, reader: EventReader) -> None:
        shown = self.messages(reader.asker)
        reader.sink.send({**_now(), "type": "messages", "messages": shown})

    def _told_classes(self) -> dict[str, Any]:
        return {**_now(), "type": "classes", "id": self._id, "classes": self._classes}

    def _snapshot(self, reader: EventReader) -> dict[str, Any]:
        place = _place(reader)
        among = self._shown if place is None else self._of.get(place[0], {})
        leases = [
            self._view(reader, shown)
            for shown in map(self._shown.__getitem__, among)
            if reader.sees(shown.lease)
            and (reader.server is None or shown.lease.state is not LeaseState.ENDED)
        ]
        return {
            **_now(),
            "type": "snapshot",
            "id": self._id,
            "leases": leases,
            "classes": self._classes,
            "messages": self.messages(reader.asker),
        }

    def _view(self, reader: EventReader, shown: Shown) -> LeaseView:
        if reader.server is None:
            return with_detail(reader.asker, shown.lease, shown.view)
        return self.granted(shown.lease, shown.view)


def _place(reader: EventReader) -> tuple[str, str | None] | None:
    """Return whose leases a reader sees, where they are one person's own; None for more."""
    asker = reader.asker
    wide = asker.admin or asker.leads_all or asker.leads
    return None if wide and reader.server is None else (asker.name, reader.server)


def _only_figures(before: LeaseView, after: LeaseView) -> bool:
    """Whether nothing but figures moved, each from one value to another."""
    if before == after:
        return True
    old, new = dict(before), dict(after)
    if old.keys() != new.keys():
        return False
    return all(
        key in FIGURES and old[key] is not None and new[key] is not None
        for key in old
        if old[key] != new[key]
    )


def _steady(before: LeaseView, after: LeaseView) -> LeaseView:
    """Return the view with the end that was told, where the new one only wavers about it."""
    old, new = before.get("ends_at"), after.get("ends_at")
    if old is None or new is None or old == new:
        return after
    apart = datetime.fromisoformat(new) - datetime.fromisoformat(old)
    if abs(apart.total_seconds()) > _WAVER:
        return after
    steady = after.copy()
    steady["ends_at"] = old
    return steady


def _now() -> dict[str, Any]:
    return {"now": datetime.now(UTC).isoformat()}
