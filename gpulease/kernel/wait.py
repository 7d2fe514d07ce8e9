"""Waiting for a GPU: the request and the queue.

The wait of ``%%gpu`` is bounded, and the request stays queued after the bound.  An interrupt
withdraws only a request that this cell made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from gpulease.errors import GPULeaseError
from gpulease.kernel.clock import clock
from gpulease.kernel.departure import Phase
from gpulease.kernel.inbox import Inbox
from gpulease.kernel.lease import USABLE, LeaseLink
from gpulease.kernel.options import CellOptions
from gpulease.kernel.relay import QueueProgress
from gpulease.protocol.service import LeaseView
from gpulease.sides.versions import check_python

if TYPE_CHECKING:
    from gpulease.protocol.asks import AskBody

DEFAULT_WAIT = 300.0
LEAVE_SECONDS = 90.0
#: What a cell shows meanwhile.
LEAVING = "The former GPU is leaving ..."
#: Refusals that say nothing of the request: somebody on the way to the queue cannot answer now.
OUTAGES = frozenset(
    ("server_link_down", "service_unreachable", "hub_unreachable", "store_unavailable")
)
#: How long a cell waits for them where it says nothing else, and how often it tries (seconds).
OUTAGE_SECONDS = 60.0
RETRY_SECONDS = 1.0
#: How long one ask waits for its answer, whatever the cell's bound is: what a busy service may
#: take at least, what none takes at most (seconds).
ASK_MIN, ASK_MAX = 5.0, 30.0
#: The lease ended while nobody could tell this kernel: the service or its channel was away.
ENDED = frozenset(("not_active", "lease_ended"))
#: The connection or the companion was gone before anything of this notebook had run there.
BROKEN = frozenset(("lease_unreachable", "companion_died", "lease_lost"))
#: What a cell's options ask for, where they say it.
_ASKED: Final = (
    "count", "min_count", "at_least", "nodes", "seconds", "project", "needs",
)  # fmt: skip


class GPUNotReady(GPULeaseError):  # noqa: N818 - the name that people read
    """No GPU within the wait; the ask stays queued."""


class Waiter:
    """Gets this kernel a companion on behalf of a cell; main thread only."""

    def __init__(
        self,
        shell: Any,
        inbox: Inbox,
        link: LeaseLink,
        default_class: Callable[[], str | None],
        alone: Callable[[], bool] = lambda: False,
        *,
        unattended: bool = False,
    ) -> None:
        self._shell = shell
        self._alone = alone
        self._unattended = unattended  # a run of a whole notebook
        self._inbox = inbox
        self._link = link
        self._default_class = default_class
        self._away_since: float | None = None  # since when the service does not answer
        self._patience = ASK_MAX  # how long the next ask may take for its answer (seconds)
        self._differences: list[str] = []  # how the GPU's image differs from this notebook
        self._said_not_asked: list[str] = []  # the options of which it was said
        self._said_longer = ""  # the lease of which it was said that --for does not shorten it
        self.status = QueueProgress(shell)  # of the last cell that waited

    def ensure(self, options: CellOptions) -> None:
        """Return when a companion is attached.

        Raises:
            GPUNotReady: with position and expected time; the ask stays queued.
            GPULeaseError: why there can be no GPU.
        """
        check_python()
        link = self._link
        if link.target is not None:
            self._say_not_asked(options)
        if link.drains_unheard:
            self._hear_of_drain()
        if link.attachment is not None and link.phase is Phase.ATTACHED:
            if link.target is None:
                self._fits(options)
            return
        if link.phase is Phase.DRAINING:
            link.departure.now()  # at the border of this cell, so that the old lease can leave
        progress = self.status = QueueProgress(self._shell, self._alone)
        try:
            if link.target is not None:
                progress.show("Starting the companion ...")
                link.obtain(None)
            else:
                self._outlast(options, progress)
        finally:
            progress.clear()

    def _hear_of_drain(self) -> None:
        progress = QueueProgress(self._shell, self._alone)
        progress.show(LEAVING)
        deadline = time.monotonic() + LEAVE_SECONDS
        try:
            self._inbox.wait_for(lambda: not self._link.drains_unheard, deadline)
        finally:
            progress.clear()

    def _outlast(self, options: CellOptions, progress: QueueProgress) -> None:
        """Obtain a companion; while the service is away wait for it, as long as for a GPU."""
        bound = OUTAGE_SECONDS if options.wait is None else options.wait
        self._away_since = None
        self._patience = bound
        while (error := self._try(options, progress)) is not None:
            now = time.monotonic()
            since = self._away_since = self._away_since or now
            left = self._patience = since + bound - now
            if left <= 0:
                raise _still_away(error, bound)
            until = clock(datetime.now(UTC) + timedelta(seconds=left))
            progress.show(
                f"{error.sentence} This cell waits for it until {until}; interrupt it to stop."
            )
            self._inbox.wait_for(lambda: False, now + min(RETRY_SECONDS, left))

    def _try(self, options: CellOptions, progress: QueueProgress) -> GPULeaseError | None:
        """Obtain a companion, or return why nobody can be asked for one at present."""
        try:
            self._obtain(options, progress)
        except GPULeaseError as error:
            if error.reason not in OUTAGES or options.no_wait:
                raise
            return error
        return None

    def _obtain(
        self, options: CellOptions, progress: QueueProgress, *, again: bool = False
    ) -> None:
        link = self._link
        lease = self._lease(options, progress)
        self._leave_other(lease, progress)
        progress.show(f"Your {lease['gpu_class']} is ready; connecting ...")
        try:
            link.obtain(lease)
        except GPULeaseError as error:
            if again or error.reason not in ENDED | BROKEN:
                raise
            if error.reason in ENDED:
                link.leases.pop(lease["id"], None)
            self._obtain(options, progress, again=True)

    def ask(self, options: CellOptions, patience: float = ASK_MAX) -> LeaseView:
        """Ask for a lease; a repeated ask gives the same one back.

        Args:
            patience: how long the answer may take (seconds), within ``ASK_MIN`` and ``ASK_MAX``.

        Raises:
            GPULeaseError: why there is none; of ``OUTAGES`` where nobody answered.
        """
        bus = self._link.bus
        if bus is None:
            raise no_service()
        asked = time.monotonic()
        try:
            lease: LeaseView = bus.call(
                "ask", self._wanted(options), min(max(patience, ASK_MIN), ASK_MAX)
            )
        except GPULeaseError as error:
            if error.reason in OUTAGES:
                self._away_since = self._away_since or asked
            raise
        self._away_since = None
        self._differences = lease.get("differences", [])
        known = self._link.leases.get(lease["id"])
        if known is None or known["version"] < lease["version"]:
            self._link.on_bus({"event": "lease", "lease": lease})
        return self._link.leases.get(lease["id"], lease)

    def _wanted(self, options: CellOptions) -> AskBody:
        body: AskBody = {"kernel_id": self._link.kernel_id, "origin": "magic"}
        mine = self._link.mine()  # what waits, or changes its shape, is what a cell means
        asked = None if mine is None else mine.get("asked_class") or mine["gpu_class"]
        gpu_class = options.gpu_class or asked or self._default_class()
        if gpu_class is not None:
            body["gpu_class"] = gpu_class
        for name in _ASKED:
            if (value := getattr(options, name)) is not None:
                body[name] = value
        if options.in_quota_only:
            body["in_quota_only"] = True
        return body

    def describe(self, lease: LeaseView) -> str:
        """Say where this kernel's own request stands, and what it will find on the GPU."""
        return " ".join([lease["sentence"], *self._differences])

    def offered(self, gpu_class: str) -> str:
        """Refuse a class that the hub does not offer; say where that cannot be told yet."""
        known = [each["name"] for each in self._link.classes]
        if self._link.bus is None:
            return "There is no hub here to ask: the class counts where there is one."
        if not known:
            return "What the hub offers is not known yet: the next request checks the class."
        if gpu_class in known:
            return ""
        near = get_close_matches(gpu_class, known, 1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise GPULeaseError(
            "unknown_class",
            f"There is no GPU class {gpu_class!r} here.",
            next_step=f"{meant}Available: {', '.join(sorted(known))}.",
            numbers={"classes": sorted(known)},
            status=404,
        )

    def _fits(self, options: CellOptions) -> None:
        """Refuse a cell that asks for another class or for more than is held."""
        if options.gpu_class is not None:
            self.offered(options.gpu_class)
        attachment = self._link.attachment
        assert attachment is not None
        held = attachment.view["gpu_class"]
        asked = attachment.view.get("asked_class") or held
        mine = self._link.mine()
        count, nodes = options.count or options.nodes or 1, options.nodes or 1
        most = 0 if mine is None else max(mine["count"], mine.get("asked_count", 0))
        if mine is not None and (count > most or nodes not in (1, mine.get("nodes", 1))):
            raise GPULeaseError(
                "other_lease",
                f"This server holds {amount(held, mine['count'], mine.get('nodes', 1))}, and the "
                f"cell asks for {count}{_on(nodes)}.",
                next_step="%gpu return gives the lease back; then run the cell again.",
            )
        if options.gpu_class not in (None, held, asked):
            raise GPULeaseError(
                "other_class",
                f"This server holds {held}, and the cell asks for {options.gpu_class}.",
                next_step="%gpu return gives the lease back; then run the cell again.",
            )
        if options.seconds is not None and mine is not None and mine["hard_end"]:
            self._say_longer(mine["id"], mine["hard_end"], options.seconds)

    def _say_not_asked(self, options: CellOptions) -> None:
        """Say once what is without effect on a companion for which nobody was asked."""
        given = options.of_the_request()
        if given and given != self._said_not_asked:
            self._said_not_asked = given
            have = "has" if len(given) == 1 else "have"
            self._link.notices.add(
                f"{' and '.join(given)} {have} no effect here: the cell runs in the companion of "
                "%gpu connect, for which no hub was asked."
            )

    def _say_longer(self, lease_id: str, hard_end: str, seconds: float) -> None:
        """Say once a lease that ``--for`` does not shorten what was granted before."""
        left = (datetime.fromisoformat(hard_end) - datetime.now(UTC)).total_seconds()
        if left > seconds and self._said_longer != lease_id:
            self._said_longer = lease_id
            self._link.notices.add(
                f"--for has no effect on a GPU that you have already: this one is yours until "
                f"{clock(hard_end)} at most."
            )

    def _leave_other(self, lease: LeaseView, progress: QueueProgress) -> None:
        """Wait until an older lease that drains is gone: one companion at a time."""
        link = self._link

        def free() -> bool:
            held = link.attachment
            if held is None:
                return True
            # One that becomes another shape is the same lease, with another companion.
            return held.view["lease_id"] == lease["id"] and link.phase is not Phase.DRAINING

        if not free():
            progress.show(LEAVING)
            if not self._inbox.wait_for(free, time.monotonic() + LEAVE_SECONDS):
                link.lost_lease("The former lease did not end in time.")
            link.departure.commit_now()

    def _lease(self, options: CellOptions, progress: QueueProgress) -> LeaseView:
        """Return a usable lease, waiting within the bound."""
        before = self._link.mine()
        asked_here = before is None
        if before is not None and before["state"] in USABLE:
            return before
        if self._away_since is None:
            progress.show("Asking for a GPU ...")
        lease = self.ask(options, self._patience)
        if lease["state"] not in USABLE and options.no_wait:
            raise self._not_ready(lease, 0.0)
        bound = lease.get("wait", DEFAULT_WAIT) if options.wait is None else options.wait
        try:
            return self._wait(lease, options, bound, progress)
        except KeyboardInterrupt:
            if asked_here and self._link.bus is not None:
                self._link.bus.call("end", {"lease_id": lease["id"], "force": True})
                said = "Your request for a GPU was withdrawn. The cell did not run."
            else:
                said = "The cell did not run. Your request stays in the queue."
            raise KeyboardInterrupt(said) from None

    def _wait(
        self, lease: LeaseView, options: CellOptions, bound: float, progress: QueueProgress
    ) -> LeaseView:
        self._link.phase = Phase.WAITING
        deadline = time.monotonic() + bound
        last = lease
        try:
            while True:
                now = self._link.leases.get(last["id"]) or self._look_up(last)
                if now is None:
                    if not self._asks_anew(last):
                        raise self._ended(last)
                    now = self.ask(options)
                last = now
                if now["state"] in USABLE:
                    return now
                progress.show(self.describe(now))
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._not_ready(now, bound)
                self._inbox.run_one(left)
        finally:
            if self._link.phase is Phase.WAITING:
                self._link.phase = Phase.NONE

    def _look_up(self, last: LeaseView) -> LeaseView | None:
        """Return what became of a request that the bus names no more; None when it has ended.

        A snapshot taken just before the ask may come just after its answer, so absence alone says
        nothing.  While the service cannot be asked the request is taken to wait on.
        """
        link = self._link
        if last["id"] in link.ends or link.bus is None:
            return None
        try:
            found: LeaseView = link.bus.call("lease", {"lease_id": last["id"]})
        except GPULeaseError as error:
            if error.status == 404:
                return None
            found = last
        link.on_bus({"event": "lease", "lease": found})
        return link.leases.get(last["id"])

    def _not_ready(self, lease: LeaseView, bound: float) -> GPUNotReady:
        waited = f" within {bound:.0f} s" if bound else ""
        return GPUNotReady(
            "not_ready",
            f"No GPU{waited}. {self.describe(lease)} Your request stays in the queue.",
            next_step="Run the cell again to keep waiting, %gpu return to withdraw, or add "
            "--else cpu to run it here.",
            numbers={"position": lease["position"], "expected_start": lease["expected_start"]},
            status=503,
        )

    def _asks_anew(self, last: LeaseView) -> bool:
        """Whether a request that others ended is made again: nobody is there to run the cell again.

        Who wants to stop a run cancels it; who ended all requests of a group freed its GPUs.
        """
        ended = self._link.ends.get(last["id"])
        return self._unattended and ended is not None and ended["reason"] == "forced"

    def _ended(self, last: LeaseView) -> GPULeaseError:
        ended = self._link.ends.get(last["id"])
        reason = ended["reason"] if ended else "withdrawn"
        why = ended["sentence"] if ended else "The request ended before it became a lease."
        return GPULeaseError(
            reason, why, next_step="Run the cell again to send a new request.", status=409
        )


def no_service() -> GPULeaseError:
    """Return the refusal of a kernel that has nobody to ask for a GPU."""
    return GPULeaseError(
        "no_service",
        "This kernel was not started by a server that lends GPUs.",
        next_step="%gpu connect local runs GPU cells in a companion on this machine.",
        status=503,
    )


def _still_away(error: GPULeaseError, bound: float) -> GPULeaseError:
    return GPULeaseError(
        error.reason,
        f"{error.sentence} This cell waited {bound:.0f} s for it.",
        next_step="Run the cell again later, or add --else cpu to run it here.",
        numbers=error.numbers,
        status=error.status,
    )


def amount(gpu_class: str, count: int, nodes: int) -> str:
    """Return how many GPUs of a class, and on how many nodes where it is not one."""
    return f"{count} x {gpu_class}{_on(nodes)}"


def _on(nodes: int) -> str:
    return f" on {nodes} nodes" if nodes > 1 else ""
