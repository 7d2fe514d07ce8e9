"""The notebook servers behind the leases: which run, and whether their packages fit a GPU's image.

A server that is gone ends its lease, one that came up lets its request count, whose groups changed
waits with the new ones, and a busy lease's server is reported as active so that the hub's culler
leaves it alone.  When the hub gives no answer nothing is concluded.

What supervisors say of their images is remembered for a time.  A supervisor runs beside a person's
own code, so what one person's says refuses nobody else.  A request that could not run its cells is
refused before it waits for a GPU.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from gpulease.companion.handshake import check_packages, python_mismatch, same_minor
from gpulease.policy import lifecycle
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import Evidence, GPUClass, Lease, LeaseState, PolicyDocument, Verdict
from gpulease.policy.reservations.seats import in_hold
from gpulease.protocol.asks import Environment
from gpulease.protocol.reports import FromSupervisor, KernelReport
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.api import HubServer, HubUnreachableError
from gpulease.service.hubs.auth import Asker
from gpulease.service.hubs.hubs import Hubs
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import Change
from gpulease.system.background import keep_polling

log = logging.getLogger(__name__)

#: A request whose server never came up is withdrawn after this.
_START_MAX = timedelta(minutes=15)
_ACTIVITY_EVERY = timedelta(seconds=60)


@dataclass(eq=False)
class Servers:
    """Watches the servers of live leases.

    Args:
        every: seconds between two looks at the hub; a closed channel makes one at once.
    """

    ledger: Ledger
    loop: Reconciler
    links: SupervisorConnections
    hub: Hubs
    _: KW_ONLY
    every: float = 10.0

    def __post_init__(self) -> None:
        self._joined: dict[tuple[str, str], int] = {}
        self._kernels: dict[tuple[str, str], set[str]] = {}
        self._reports: dict[tuple[str, str], Sequence[KernelReport]] = {}
        self._missed: dict[str, int] = {}  # lease -> looks in a row that found no server
        self._told: dict[tuple[str, str], datetime] = {}
        self._wanted = asyncio.Event()

    def joined(self, user: str, server: str) -> None:
        """Note that a server opened its channel: it runs."""
        key = (user, server)
        self._joined[key] = self._joined.get(key, 0) + 1
        self._wanted.set()

    def left(self, user: str, server: str) -> None:
        """Note that a server's channel closed: ask the hub soon whether it still runs."""
        key = (user, server)
        self._joined[key] = self._joined.get(key, 1) - 1
        if self._joined[key] <= 0:
            del self._joined[key]
            self._kernels.pop(key, None)
            self._reports.pop(key, None)
        self._wanted.set()

    def linked(self, user: str, server: str) -> bool:
        """Tell whether a server's channel is open."""
        return (user, server) in self._joined

    def kernels(self, user: str, server: str, reports: Sequence[KernelReport]) -> None:
        """Take a server's list of kernels; the keys of those that ended are withdrawn."""
        key = (user, server)
        alive = {report["id"] for report in reports}
        ended = self._kernels.get(key, set()) - alive
        self._kernels[key] = alive
        if _whose(reports) != _whose(self._reports.get(key, ())):
            self.loop.wake()  # a lease may have another notebook now
        self._reports[key] = reports
        for lease in self.ledger.live():
            if (lease.user, lease.server) == key:
                self.links.revoke(lease.id, ended)
                self.check_keys(lease)

    def notebook_of(self, lease: Lease) -> str:
        """Return the path of the notebook that a lease is for, ``""`` while none is known."""
        if lease.state in (LeaseState.QUEUED, LeaseState.ENDED) and lease.kernel_id is None:
            return ""
        for report in self._reports.get((lease.user, lease.server), ()):
            if lease.id in report.get("leases", ()) or report["id"] == lease.kernel_id:
                return report.get("notebook", "")
        return ""

    def check_keys(self, lease: Lease) -> None:
        """Withdraw the keys of kernels that ended while nobody looked, as far as they are known."""
        alive = self._kernels.get((lease.user, lease.server))
        if alive is not None:
            self.links.settle(lease.id, alive)

    async def run(self) -> None:
        """Look at the hub until cancelled."""
        await keep_polling(
            self.look, self._wanted, every=self.every, log=log,
            failed="the hub's servers are not watched", away=(HubUnreachableError,),
        )  # fmt: skip

    async def look(self) -> None:
        """Compare live leases with the hub's servers, once.

        Raises:
            HubUnreachableError: the hub did not answer.
            GPULeaseError: the store did not take a change.
        """
        live = self.ledger.live()
        users = {lease.user for lease in live}
        for lease_id in self._missed.keys() - {lease.id for lease in live}:
            del self._missed[lease_id]
        if not users:
            await self.hub.look()
            return
        asked_at = self.loop.clock()
        servers = await self.hub.running(users)
        async with self.ledger.lock:
            found = [
                self._compared(lease, servers[lease.user].get(lease.server))
                for lease in self.ledger.live()
                if lease.user in servers and lease.created <= asked_at
            ]
            await self.loop.change([change for change in found if change is not None])
        await self._refresh()

    def _compared(self, lease: Lease, server: HubServer | None) -> Change | None:
        """Return what a server's state changes of its lease."""
        now = self.loop.clock()
        active = server is not None and server.active
        self._missed[lease.id] = 0 if active else self._missed.get(lease.id, 0) + 1
        # A server that still holds its channel lives: one look at a hub that starts may be wrong.
        doubtful = self.linked(lease.user, lease.server) and self._missed[lease.id] < 2
        if lease.server_ready and not active and doubtful:
            return None
        if lease.server_ready and not active:
            after, why = lifecycle.server_gone(lease, now), "server_gone"
        elif not lease.server_ready and server is not None and server.ready:
            after, why = lifecycle.server_ready(lease, ready=True), "server_ready"
        elif not lease.server_ready and not active and now - lease.created > _START_MAX:
            after, why = lifecycle.server_gone(lease, now), "server_gone"
        else:
            groups = self.hub.groups_of(lease.user)
            after = lease if groups is None else lifecycle.regroup(lease, groups)
            why = "groups_changed"
        return Change(lease, after, "hub", why) if after != lease else None

    async def _refresh(self) -> None:
        """Report the servers of busy leases as active, as long as policy lets a lease be busy."""
        now = self.loop.clock()
        self._told = {key: at for key, at in self._told.items() if now - at < _ACTIVITY_EVERY}
        policy, evidence = self.loop.policies.current, self.loop.observed_state.evidence
        due = set()
        for lease in self.ledger.live():
            since = _busy_since(evidence.get(lease.id))
            cap = lifecycle.time_outs_of(policy, lease).busy_max
            if since is None or not _within(since, now, cap) or lease.state is LeaseState.QUEUED:
                continue
            due.add((lease.user, lease.server))
        answers = await asyncio.gather(
            *(self._tell(key, now) for key in sorted(due - self._told.keys())),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _tell(self, key: tuple[str, str], now: datetime) -> None:
        """Report one server; what the hub did not take is reported with the next look."""
        await self.hub.refresh_activity(*key, now)
        self._told[key] = now


def _whose(reports: Sequence[KernelReport]) -> list[tuple[str, str, list[str]]]:
    return [(each["id"], each.get("notebook", ""), each.get("leases", [])) for each in reports]


def _busy_since(evidence: Evidence | None) -> datetime | None:
    """Return since when a lease is busy without interruption, ``None`` when it is not."""
    busy = evidence is not None and evidence.verdict is Verdict.BUSY
    return evidence.since if busy and evidence else None


def _within(since: datetime, now: datetime, seconds: float) -> bool:
    """Tell whether ``now`` is less than ``seconds`` after ``since``."""
    return now - since < timedelta(seconds=seconds)


#: For so long an image is what it was: the same name may mean a newer one after that.
REMEMBERED = timedelta(days=1)
#: Images that are remembered, and people whose word about one is.
IMAGES, PEOPLE = 100, 20
#: A version, as others' notebooks may show it.
_PLAIN = re.compile(r"[0-9A-Za-z.+!_-]{1,64}")


@dataclass(frozen=True)
class Report:
    """What somebody's supervisor said of its image when it started."""

    user: str
    at: datetime
    found: Environment


def differences(
    user: str, gpu_class: str, notebook: Environment, reports: Sequence[Report]
) -> list[str]:
    """Return a sentence for each way in which a class's image differs from a notebook's.

    Args:
        reports: of the class's image, at most one of each person, the newest last.

    Raises:
        GPULeaseError: ``python_mismatch``: the notebook's code cannot load there.  That is certain
            where the notebook's interpreter stands in the image by the same path, and the person's
            own lease or those of two others said so and nobody the contrary.
    """
    if not reports:
        return []
    found = reports[-1].found
    said = check_packages(home=notebook["packages"], away=found["packages"])
    if same_minor(notebook["python"], found["python"]):
        return said
    other = ".".join(found["python"].split(".")[:2])
    step = f"Use a server image or a kernel with Python {other}, or another class than {gpu_class}."
    same_place = [each for each in reports if each.found["executable"] == notebook["executable"]]
    agreed = not any(same_minor(notebook["python"], each.found["python"]) for each in reports)
    believed = len(same_place) >= 2 or any(each.user == user for each in same_place)
    if agreed and believed:
        raise python_mismatch(home=notebook["python"], away=found["python"], next_step=step)
    warning = (
        f"This notebook runs Python {notebook['python']}, and GPUs of class {gpu_class} ran Python "
        f"{found['python']} last: its cells may not run there. {step}"
    )
    return [warning, *said]


@dataclass(eq=False)
class Environments:
    """What is known of images now.

    Args:
        image: as the provider's.
        policy: returns the policy in force.
        windows: returns the windows of reservations at an instant.
        clock: the time, UTC.
    """

    image: Callable[[GPUClass, str], str]
    policy: Callable[[], PolicyDocument]
    windows: Callable[[datetime], Sequence[Window]]
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._known: dict[str, dict[str, Report]] = {}

    def seen(self, lease: Lease, hello: FromSupervisor) -> None:
        """Take the first word of a lease's supervisor, said before any code of its user ran."""
        image = self._image_of(lease.gpu_class, lease.image)
        python, executable = hello.get("python", ""), hello.get("executable", "")
        if not image or not executable or not _PLAIN.fullmatch(python):
            return
        reports = self._known.pop(image, {})
        reports.pop(lease.user, None)
        packages = hello.get("packages", {}).items()
        plain = {name: version for name, version in packages if _PLAIN.fullmatch(version)}
        found = Environment(python=python, executable=executable, packages=plain)
        reports[lease.user] = Report(lease.user, self.clock(), found)
        self._known[image] = dict(list(reports.items())[-PEOPLE:])
        while len(self._known) > IMAGES:
            self._known.pop(next(iter(self._known)))

    def check(self, asker: Asker, gpu_class: str | None, notebook: Environment | None) -> list[str]:
        """Return how the image that would be theirs differs from the notebook that asks.

        Raises:
            GPULeaseError: ``python_mismatch``, as ``differences`` does.
        """
        name = gpu_class or self.policy().default_class
        image = self._image_of(name, self._course(asker, name))
        if notebook is None or not image:
            return []
        since = self.clock() - REMEMBERED
        reports = [each for each in self._known.get(image, {}).values() if each.at >= since]
        return differences(asker.name, name, notebook, reports)

    def _course(self, asker: Asker, gpu_class: str) -> str:
        """Return the image of the course on whose seat they would sit."""
        now = self.clock()
        for window in in_hold(self.windows(now), now):
            if window.of.gpu_class == gpu_class and window.entitles(asker.name, asker.groups):
                return self.policy().reservations.of_group(window.of.group).image
        return ""

    def _image_of(self, gpu_class: str, course: str) -> str:
        known = self.policy().by_name.get(gpu_class)
        return self.image(known, course) if known is not None else ""
