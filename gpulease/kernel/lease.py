"""The lease as the home kernel sees it: none, waiting, attached, draining, gone.

A state machine: messages of the bus and the supervisor go in, attachments come and go, and what a
person should read goes to ``notices``.  Main thread only, except where said.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from gpulease.channel.curve import new_keys
from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.channel.unix import UnixClient
from gpulease.errors import GPULeaseError
from gpulease.kernel import attach
from gpulease.kernel.control import Event, Joining, Push, connect_bus
from gpulease.kernel.departure import Departure, Phase
from gpulease.kernel.execution import Executor
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.notices import Notices, end_words, last_word, leaves_at
from gpulease.protocol.service import ConnectionView, EndView, LeaseView
from gpulease.sides.versions import check_python, environment

if TYPE_CHECKING:
    from gpulease.transfer.home import HomeSide

log = logging.getLogger("gpulease.kernel")
USABLE = ("active", "warned")
#: Where a person clicked for a GPU, rather than ran a cell that asks for one.
CLICKED = ("page", "lab")
#: How long a kernel's first cell waits for the notebook server's first word (seconds).
GREETING_SECONDS = 1.0
#: How long a supervisor may take to end a companion in order (seconds).
CLOSE_SECONDS = 20.0


class LeaseLink:
    """This kernel's tie to a lease; ``changed`` is called after every change."""

    def __init__(
        self,
        *,
        kernel_id: str,
        inbox: Inbox,
        io: Callable[[], IOThread],
        home: Callable[[], HomeSide],
        executor: Executor,
        changed: Callable[[], None],
    ) -> None:
        self.kernel_id = kernel_id
        self.phase = Phase.NONE
        self.leases: dict[str, LeaseView] = {}
        self.classes: list[dict[str, Any]] = []
        self.bus: UnixClient | None = None
        self.target: attach.Reach | None = None  # set by %gpu connect
        self.attachment: attach.Attachment | None = None
        self.opening: Future[attach.Attachment] | None = None
        self._joining = Joining(executor.fail)
        self.notices = Notices()
        self.clicked: Callable[[LeaseView], None] = lambda _: None
        self.was_sticky: Callable[[], None] = lambda: None
        self.detached: Callable[[], None] = lambda: None
        self.in_cell: Callable[[], bool] = lambda: False
        self.by_person: Callable[[], bool] = lambda: True  # what runs is a person's cell
        self.ends: dict[str, EndView] = {}
        self.cell = ""  # the GPU cell that runs now, for naming what it loses
        self.stopped_by: str = ""  # the reason for which gpulease itself stopped the GPU cell
        self.lost: GPULeaseError | None = None  # how values were lost between two cells
        self._inbox = inbox
        self._io = io
        self._home = home
        self._executor = executor
        self._changed = changed
        self._keys = new_keys()
        self._clicked: set[str] = set()
        self.greeted = False
        self._waited_for_greeting = False
        self.departure = Departure(self, inbox, home)
        executor.abandon = self.abandon

    # What the bus says

    def connect_bus(self, path: str) -> None:
        """Open the bus of the notebook server."""
        self.bus = connect_bus(path, self.kernel_id, self._inbox, self.on_bus)

    def on_bus(self, event: Event) -> None:
        """Take in one event of the bus."""
        kind = event["event"]
        if kind == "snapshot":
            self.leases = {lease["id"]: lease for lease in event["leases"]}
            self.classes = list(event.get("classes", ()))
            if not self.greeted and self.kernel_id in event.get("sticky", ()):
                self.was_sticky()
            if self.bus is not None:  # Lab asks for this kernel, too
                self.bus.notify("environment", environment())
            self.greeted = True
            for lease in list(self.leases.values()):
                self._lease_changed(lease)
        elif kind == "lease":
            lease = event["lease"]
            old = self.leases.get(lease["id"])
            if old is None or old["version"] <= lease["version"]:
                self.leases[lease["id"]] = lease
                self._lease_changed(lease)
        elif kind == "classes":
            self.classes = list(event["classes"])
        self._changed()

    def mine(self) -> LeaseView | None:
        """The lease or request that this kernel's cells use: the newest that has not ended."""
        if self.attachment is not None and self.target is None:
            lease = self.leases.get(self.attachment.view["lease_id"])
            if lease is not None and lease["state"] != "ended":
                return lease
        alive = [lease for lease in self.leases.values() if lease["state"] != "ended"]
        return max(alive, key=lambda lease: lease["created"], default=None)

    @property
    def drains_unheard(self) -> bool:
        """Whether the bus says that the lease drains, and its supervisor has not said so yet.

        The two come by two ways: a cell that began now would be interrupted a moment later.
        """
        if self.attachment is None or self.target is not None or self.phase is not Phase.ATTACHED:
            return False
        lease = self.leases.get(self.attachment.view["lease_id"])
        return lease is not None and lease["state"] == "draining"

    def claim_click(self) -> None:
        """Before a cell: a GPU that was clicked for and has no kernel yet is for this one."""
        if self.bus is None:
            return
        if not self._waited_for_greeting:
            # The first cell may come before the bus has spoken.
            self._waited_for_greeting = True
            self._inbox.wait_for(lambda: self.greeted, time.monotonic() + GREETING_SECONDS)
        for lease in self.leases.values():
            if lease["state"] in USABLE and lease["kernel_id"] is None:
                self._click(lease)

    def _click(self, lease: LeaseView) -> None:
        asked = lease["click_runs_cells"] != "none" and lease["origin"] in CLICKED
        if asked and lease["id"] not in self._clicked:
            self._clicked.add(lease["id"])
            self.clicked(lease)

    def _lease_changed(self, lease: LeaseView) -> None:
        attached = self.attachment is not None and self.attachment.view["lease_id"] == lease["id"]
        if lease["state"] == "ended":
            self.leases.pop(lease["id"], None)
            end = lease["end"]
            if end is not None:
                self.ends[lease["id"]] = end
                self.notices.say_better(lease["id"], end)
            if attached:
                self.lost_lease(end_words(end))
        elif self._chosen(lease):
            self._click(lease)
            if self.opening is None:
                with suppress(GPULeaseError):  # the first GPU cell says what is wrong
                    self.start_attaching(lease)

    def _chosen(self, lease: LeaseView) -> bool:
        """Whether this kernel gets a companion at once: it asked, or ran a cell last."""
        mine = lease["kernel_id"] == self.kernel_id
        return mine and lease["state"] in USABLE and self.attachment is None

    # Attaching

    def reach(self, lease: LeaseView) -> attach.Reach:
        """Return how to get at ``lease`` through the notebook server."""
        connected = self.bus
        assert connected is not None

        def by_bus() -> tuple[ConnectionView, KeyPair]:
            body = {"lease_id": lease["id"], "client_key": self._keys.public}
            view: ConnectionView = connected.call("connection", body)
            return view, self._keys

        return by_bus

    def start_attaching(self, lease: LeaseView | None) -> Future[attach.Attachment]:
        """Begin to open the companion; finished on the main thread, in a cell or between.

        Raises:
            GPULeaseError: on a Python that carries no variables.
        """
        check_python()
        reach = self.target
        if reach is None:
            assert lease is not None
            reach = self.reach(lease)
        future = attach.open_in_thread(
            self._io(),
            self._inbox,
            kernel_id=self.kernel_id,
            wire_keys=self._keys,
            reach=reach,
            on_push=self._on_push,
            early=self._early,
            patience=attach.REACH_SECONDS if self.target is None else attach.FILE_REACH_SECONDS,
        )
        self.opening = future
        self._joining.begin()
        return future

    def obtain(self, lease: LeaseView | None) -> None:
        """Have a companion when this returns.

        Raises:
            GPULeaseError: why there is none.
        """
        if self.attachment is not None:
            return
        future = self.opening or self.start_attaching(lease)
        self._inbox.wait_for(future.done)
        self._finish(future)

    def finish_ready(self) -> None:
        """Between cells: finish an attaching that no cell waits for."""
        future = self.opening
        if future is None or not future.done():
            return
        try:
            self._finish(future)
        except GPULeaseError as error:
            log.info("no companion yet: %s", error)  # the first GPU cell tries again, and tells

    def _finish(self, future: Future[attach.Attachment]) -> None:
        if self.opening is not future:
            return
        try:
            self._join(future.result())
        finally:
            self.opening = None  # only now: events that come meanwhile must not open another
        for push in self._joining.rest():
            self._on_push(push)

    def _join(self, attachment: attach.Attachment) -> None:
        try:
            self._joining.check()
            attach.connect_channels(attachment, self._io(), self._inbox, self._executor)
            endpoint = Endpoint(attachment.opened["wire_address"], attachment.opened["wire_key"])
            notes = self._home().connect(
                endpoint, attachment.wire_keys, parked=attachment.opened["parked"]
            )
        except BaseException:
            self._executor.channels = None
            attachment.close()
            raise
        self.attachment = attachment
        self.departure.begin_anew()
        self.phase = Phase.ATTACHED
        self.notices.add(*attachment.opened["warnings"], *(note.sentence for note in notes))
        self._changed()

    # What the supervisor says

    def _early(self, push: Push) -> None:
        """On the I/O thread: a drain need not wait for a home cell to end."""
        if push["push"] == "drain" and self.in_cell() and not self._executor.busy:
            self.departure.begin_early(push)

    def _on_push(self, push: Push) -> None:
        kind = push["push"]
        if self.attachment is None:
            self._joining.take(push)
            return
        if kind == "companion_died":
            why = push.get("detail") or "its process ended"
            self.companion_died(f"The companion of this notebook died: {why}.")
        elif kind == "lost":
            self.companion_died("The lease's supervisor does not answer any more.", "lease_lost")
        elif kind == "drain":
            self.departure.begin(push, busy=self._executor.busy)
        elif kind == "parked":
            self.departure.parked(push)
        elif kind == "resume":
            self.phase = Phase.ATTACHED
            self.departure.begin_anew()
            self.notices.stays("The GPU stays yours: it is not released.")
        elif kind == "end":
            known = self.ends.get(self.attachment.view["lease_id"])
            told = push.get("sentence") or (known["sentence"] if known else "")
            self.lost_lease(told or last_word(push.get("reason", "")))
        elif kind == "warn":
            at, why = str(push.get("until", "")), str(push.get("reason", ""))
            self.notices.warn(leaves_at(at, why))
        elif kind == "clear":
            self.notices.withdraw()
        self._changed()

    def companion_died(self, why: str, reason: str = "companion_died") -> None:
        """Detach from a companion that is no more; what was not home is lost, and says so."""
        error = GPULeaseError(
            reason,
            why,
            next_step="What was home is intact; the next GPU cell gets a new companion.",
            status=410,
        )
        between = not self._executor.busy
        if between:
            self.notices.add(why)
        self._executor.fail(error)
        losses = self._detach(died=True)
        self.notices.add(*losses)
        self.lost = error if between and losses else None
        self.phase = Phase.NONE
        self.detached()

    @contextmanager
    def noticing_the_dead(self) -> Iterator[None]:
        """Detach when the transfer finds the companion gone, so that the next cell gets another.

        After a drain that is the lease's own end, whose telling is on its way still.
        """
        try:
            yield
        except GPULeaseError as error:
            if error.reason == "companion_gone" and self.attachment is not None:
                if self.departure.in_order:
                    self.lost_lease(last_word(""))
                else:
                    control = self.attachment.control
                    control.start_call("abandon", {"kernel_id": self.kernel_id})
                    self.companion_died("The companion of this notebook died.")
                    if self.by_person():
                        self.lost = None  # this very error tells of it
            raise

    def abandon(self) -> None:
        """Give the companion up: a second interrupt did not wait for it to stop."""
        if self.attachment is not None:
            control = self.attachment.control
            control.start_call("abandon", {"kernel_id": self.kernel_id})
            self.companion_died("The GPU cell was given up with its companion.", "abandoned")

    def end(self, lease: LeaseView | None) -> None:
        """End the lease now, whatever is still away."""
        by_service = self.bus is not None and lease is not None and self.target is None
        if by_service:
            assert self.bus is not None
            assert lease is not None
            # What cannot be copied to the notebook was asked about here, where its names are known.
            self.bus.call("end", {"lease_id": lease["id"], "force": True})
            self.leases.pop(lease["id"], None)  # its last event may come after the next cell
        if self.attachment is not None:
            close = {"kernel_id": self.kernel_id}
            if by_service:  # the supervisor ends, and may be gone before it could answer
                self.attachment.control.start_call("close", close)
            else:
                self.attachment.control.call("close", close, CLOSE_SECONDS)
            self.notices.add(*self._detach(died=False))
            self.detached()
        self.phase = Phase.NONE
        self._changed()

    def end_companion(self, *, now: bool) -> None:
        """End the companion and keep the lease; ``now`` without asking it."""
        assert self.attachment is not None
        how = "abandon" if now else "close"
        self.attachment.control.call(how, {"kernel_id": self.kernel_id}, CLOSE_SECONDS)
        self.notices.add(*self._detach(died=False))
        self.detached()
        self.phase = Phase.NONE
        self._changed()

    def _detach(self, *, died: bool) -> list[str]:
        """Let the companion go; return a sentence for each value that was not home."""
        attachment, self.attachment = self.attachment, None
        self._executor.channels = None
        if attachment is None:
            return []
        attachment.close()
        notes = self._home().disconnect(died=died, cell=self.cell, lost=self.departure.lost)
        return [note.sentence for note in notes]

    def lost_lease(self, sentence: str) -> None:
        """Detach from a lease that has ended, or should have; what was not home is lost."""
        in_order, busy = self.departure.in_order, self._executor.busy
        if busy:
            self._executor.fail(
                GPULeaseError(
                    "lease_ended",
                    f"The lease ended while this cell ran. {sentence}",
                    next_step="Run the cell again: it asks for a new lease by itself.",
                )
            )
        lease_id = self.attachment.view["lease_id"] if self.attachment is not None else ""
        losses = self._detach(died=not in_order)
        if losses and not (busy or in_order):
            self.lost = GPULeaseError("lease_ended", f"The lease ended. {sentence}")
        self.phase = Phase.GONE
        self.notices.lease_over(lease_id, sentence, losses)
        self.detached()
