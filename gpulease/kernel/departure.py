"""Leaving a lease: every newer value is copied back first.

A drain is handled from its push to its answer, and what it brought is committed; ``%gpu return``
does the same.  Main thread only, except that a drain reads from the transfer on a thread of its
own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gpulease.errors import GPULeaseError
from gpulease.kernel.control import Push
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.notices import Notices
from gpulease.protocol.service import Blocker, LeaseView
from gpulease.transfer.api import DrainReport, Place

if TYPE_CHECKING:
    from gpulease.kernel.attach import Attachment
    from gpulease.kernel.files import MirroredFiles
    from gpulease.transfer.home import HomeSide


class Phase(StrEnum):
    """Where this kernel stands with its GPU."""

    NONE = "none"
    WAITING = "waiting"
    ATTACHED = "attached"
    DRAINING = "draining"
    GONE = "gone"


log = logging.getLogger("gpulease.kernel")
DEFAULT_DRAIN = 60.0


class Leaving(Protocol):
    """The lease that is left, as its link has it."""

    kernel_id: str
    phase: Phase
    attachment: Attachment | None
    notices: Notices
    in_cell: Callable[[], bool]
    stopped_by: str

    def mine(self) -> LeaseView | None:
        """Return the lease that this kernel's cells use."""

    def end(self, lease: LeaseView | None) -> None:
        """End it now, whatever is still away."""

    def end_companion(self, *, now: bool) -> None:
        """End the companion, whatever is still there; the lease stays."""


class Departure:
    """How one kernel leaves its leases.

    Attributes:
        drained: what the drain of the present attachment brought; None before one ended.
        leaving: brings results home; returns a sentence for each that cannot come.
    """

    def __init__(self, lease: Leaving, inbox: Inbox, home: Callable[[], HomeSide]) -> None:
        self._link = lease
        self._inbox = inbox
        self._home = home
        self._pending: Push | None = None
        self.drained: DrainReport | None = None
        self.parks = False  # what cannot be copied to the notebook is parked by the supervisor
        self._files_left = False  # files that could not come home
        self.lost: tuple[str, ...] = ()  # names that could not be parked
        self.leaving: Callable[[], list[str]] = list
        self.files: MirroredFiles | None = None  # set by the session

    @property
    def in_order(self) -> bool:
        """Whether all is home, or it is known of each value whether it is parked or lost."""
        return self.drained is not None and (self.drained.done or self.parks)

    def begin_anew(self) -> None:
        """Another companion is there, or the one that was to leave stays."""
        self.drained, self.parks, self.lost = None, False, ()

    def parked(self, push: Push) -> None:
        """The supervisor has parked what was not copied back, or nothing of it."""
        self.lost = tuple(str(name) for name in push.get("lost") or ())
        self.parks = bool(push.get("parked") or self.lost)

    def give_back(self, *, force: bool = False) -> list[str]:
        """Bring everything home and end the lease (``%gpu return``), on the main thread.

        Returns:
            What is lost with the lease: nothing, but where ``force`` gives up what cannot come.

        Raises:
            GPULeaseError: ``not_home`` names what would be lost; the lease is then kept.
        """
        lease = self._link.mine()
        left = self._bring_all("%gpu return", "gives it back", force=force)
        self._link.end(lease)
        return left

    def restart(self, *, force: bool = False) -> list[str]:
        """Bring everything home and end the companion (``%gpu restart``); the lease stays.

        Returns and raises what ``give_back`` does.
        """
        left = self._bring_all("%gpu restart", "ends it", force=force)
        self._link.end_companion(now=force)
        return left

    def _bring_all(self, command: str, does: str, *, force: bool) -> list[str]:
        """Bring everything home before the companion is closed, which parks nothing."""
        left: list[str] = []
        if self._link.attachment is not None:
            try:
                left = self._bring_home()
            except GPULeaseError:
                if not force:  # else the companion is wedged or dead, and shall go
                    raise
            if force:
                left = [*left, *self._away(left)]
            elif left:
                raise GPULeaseError(
                    "not_home",
                    f"These cannot be copied to the notebook: {', '.join(left)}.",
                    next_step=f"%gpu says why. Delete them in a GPU cell and try again, or "
                    f"{command} --force {does} without them.",
                    numbers={"names": left},
                )
        self.lost = tuple(left)
        return left

    def _bring_home(self) -> list[str]:
        """Bring what can come; return the names of the variables and files that cannot."""
        report = self._home().drain(DEFAULT_DRAIN)
        self._link.notices.add(*self.leaving())
        self._home().commit_pending()
        stay = [blocker.name for blocker in report.blockers]
        stay += [file["name"] for file in self._bring_files()]
        return stay if stay or report.done else (self._away(()) or ["a variable"])

    def _away(self, named: Collection[str]) -> list[str]:
        rows = self._home().status()
        return [row.name for row in rows if row.place is Place.GPU and row.name not in named]

    def begin_early(self, push: Push) -> None:
        """On the I/O thread, while a home cell runs: nothing newer is made away meanwhile.

        What arrives is committed when the cell ends, so that it sees no name change under it.
        """
        attachment = self._link.attachment
        if attachment is not None and self._link.phase is not Phase.DRAINING:
            self._link.phase = Phase.DRAINING
            self._start(attachment, push)

    def begin(self, push: Push, *, busy: bool) -> None:
        """Bring everything home before ``push["until"]``, stopping a GPU cell that runs."""
        self.parks = bool(push.get("park"))
        if self._link.phase is Phase.DRAINING and not self._again():
            return
        self._link.phase = Phase.DRAINING
        if busy:
            # The supervisor interrupts what runs; the drain follows its reply.
            self._link.stopped_by = str(push.get("reason") or "idle")
        self._pending = push
        if not self._link.in_cell():
            self.now()

    def _again(self) -> bool:
        """Asked for a second time (the service restarted, or parks now): say if more is to do.

        A pass that is under way will answer; one that brought everything is answered as before.
        """
        attachment, report = self._link.attachment, self.drained
        if attachment is None or report is None:
            return False
        if report.done and not self._files_left:
            self._answer(attachment, report, ())
            return False
        self.drained = None
        return True

    def now(self) -> None:
        """Start the drain that was put off until the GPU cell ended; nothing when none was."""
        push, self._pending = self._pending, None
        if push is None or self._link.attachment is None:
            return
        self._link.notices.add(*self.leaving())
        self._start(self._link.attachment, push)

    def _start(self, attachment: Attachment, push: Push) -> None:
        seconds = _seconds_until(push.get("until"))
        threading.Thread(
            target=self._work, args=(attachment, seconds), name="gpulease-drain", daemon=True
        ).start()

    def _work(self, attachment: Attachment, seconds: float) -> None:
        try:
            report = self._home().drain(seconds)
        except Exception:  # the supervisor must hear an answer, or it waits for the bound
            log.exception("the drain failed")
            report = DrainReport(done=False)
        files = self._bring_files()
        self._inbox.put(partial(self._done, attachment, report, files))
        self._answer(attachment, report, files)

    def _answer(
        self, attachment: Attachment, report: DrainReport, files: Sequence[Blocker]
    ) -> None:
        blockers = [
            Blocker(name=b.name, reason="blocked", sentence=b.blocker, size=b.size)
            for b in report.blockers
        ]
        blockers += files
        result = "done" if report.done and not files else "blocked"
        body = {"kernel_id": self._link.kernel_id, "result": result, "blockers": blockers}
        attachment.control.start_call("drained", body)

    def _bring_files(self) -> list[Blocker]:
        """Bring home what GPU cells and their processes wrote; return what cannot come."""
        if self.files is None:
            return []
        said, blockers = self.files.bring_home()
        self._inbox.put(lambda: self._link.notices.add(*said))
        return blockers

    def _done(self, attachment: Attachment, report: DrainReport, files: Sequence[Blocker]) -> None:
        if self._link.attachment is attachment:
            self.drained, self._files_left = report, bool(files)
            self._link.notices.add(*(note.sentence for note in report.notes))
            self.commit()

    def commit(self) -> None:
        """Put what came home in its place, when no cell runs."""
        if not self._link.in_cell():
            self.commit_now()

    def commit_now(self) -> None:
        """Put what came home in its place; for the borders of cells."""
        if self._link.attachment is not None or self.drained is not None:
            self._home().commit_pending()


def _seconds_until(until: str | None) -> float:
    if not until:
        return DEFAULT_DRAIN
    left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
    return max(1.0, left)
