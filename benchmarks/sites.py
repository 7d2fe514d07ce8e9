"""Snapshots of large sites for the planner's benchmark: invented, and the same each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from gpulease.policy.calendar.occurrences import Calendar, Occurrence
from gpulease.policy.calendar.reservation import Reservation, Window
from gpulease.policy.model import (
    Device,
    Evidence,
    GPUClass,
    Lease,
    LeaseState,
    Observed,
    PolicyDocument,
    Pool,
    Snapshot,
    TimeOuts,
    Verdict,
)
from gpulease.policy.projects import Project, Projects, Share

NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
REQUESTS, GPUS, PROJECTS = 10_000, 1_000, 200
#: GPUs of one node.
EACH = 16
OUTS = TimeOuts()


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def policy(pools: int = 1, projects: int = PROJECTS, gpus: int = GPUS) -> PolicyDocument:
    """Projects own two thirds of each pool; the rest is borrowed."""
    names = [f"pool{n}" for n in range(pools)]
    classes = tuple(
        GPUClass(
            f"class{n}",
            name,
            max_count=16,
            time_outs=OUTS,
            fallback=tuple(f"class{m}" for m in range(pools) if m != n),
        )
        for n, name in enumerate(names)
    )
    own = max(0, gpus * 2 // (3 * projects * pools))
    owned = tuple((name, Share(own)) for name in names)
    return PolicyDocument(
        version=1,
        pools=tuple(Pool(name) for name in names),
        classes=classes,
        default_class="class0",
        time_outs=OUTS,
        leases_per_user=99,
        queue_max=10**6,
        projects=Projects(tuple(Project(f"p{n}", f"p{n}", pools=owned) for n in range(projects))),
    )


def devices(gpus: int, pools: int = 1, holders: dict[str, str] | None = None) -> tuple[Device, ...]:
    held = holders or {}
    return tuple(
        Device(
            f"GPU-{n:05}",
            f"pool{n // EACH % pools}",
            node=f"n{n // EACH:04}",
            occupied_by=held.get(f"GPU-{n:05}"),
        )
        for n in range(gpus)
    )


def request(number: int, random: Random, projects: int, **changed: object) -> Lease:
    asked = at(-random.uniform(0, 7200))
    base = Lease(
        id=f"r{number:06}",
        user=f"user{number}",
        server="",
        gpu_class="class0",
        count=1,
        ticket=(asked, number),
        created=asked,
        state_since=asked,
        project=f"p{random.randrange(projects)}",
    )
    return replace(base, **changed)  # type: ignore[arg-type]


def active(number: int, device: str, random: Random, projects: int, **changed: object) -> Lease:
    since = at(-random.uniform(400, 7200))
    base = request(
        number,
        random,
        projects,
        id=f"a{number:06}",
        state=LeaseState.ACTIVE,
        state_since=since,
        active_since=since,
        claimed=since,
        charged_from=since,
        attempt=1,
        devices=(device,),
        pool="pool0",
        hard_end=at(7200 + number),
        reason="connected",
    )
    return replace(base, **changed)  # type: ignore[arg-type]


def view(
    leases: list[Lease],
    known: tuple[Device, ...],
    document: PolicyDocument,
    evidence: dict[str, Evidence],
    windows: tuple[Window, ...] = (),
) -> Snapshot:
    """Build the snapshot as the service does, out of what it has in memory."""
    observed = {
        x.id: Observed(x.id, x.attempt, connected=True, in_use=True)
        for x in leases
        if x.state is not LeaseState.QUEUED
    }
    return Snapshot(NOW, document, known, tuple(leases), evidence, observed, windows=windows)


def _in_use(
    held: list[Lease], gpus: int, pools: int = 1
) -> tuple[tuple[Device, ...], dict[str, Evidence]]:
    """The devices, with those that are held, and evidence that all of these compute."""
    shown = devices(gpus, pools, {x.devices[0]: x.id for x in held})
    busy = Evidence(Verdict.BUSY, at(-60), utilisation=0.9, cells=1)
    return shown, {x.id: busy for x in held}


def _waiting(number: int, projects: int, random: Random, **changed: object) -> list[Lease]:
    return [request(n, random, projects, **changed) for n in range(number)]


def empty(requests: int = REQUESTS, gpus: int = GPUS, projects: int = PROJECTS) -> Snapshot:
    """Nothing is held; everybody asks at once."""
    random = Random(1)
    document = policy(1, projects, gpus)
    return view(_waiting(requests, projects, random), devices(gpus), document, {})


def full(requests: int = REQUESTS, gpus: int = GPUS, projects: int = PROJECTS) -> Snapshot:
    """Everything is held, three tenths over quota, and half of it is due to be reclaimed."""
    random = Random(2)
    known = devices(gpus)
    borrowers = max(1, projects * 3 // 10)
    held = []
    for n, device in enumerate(known):
        own = f"p{n % borrowers}" if n % 10 < 3 else f"p{n % projects}"
        held.append(active(n, device.uuid, random, projects, project=own))
    evidence = {
        x.id: Evidence(Verdict.IDLE, at(-900), 900, 900, before=Verdict.QUIET)
        if n % 2
        else Evidence(Verdict.BUSY, at(-60), utilisation=0.9, cells=1)
        for n, x in enumerate(held)
    }
    # Not in the same moment: that would be taken for a fault of the monitoring.
    evidence = {
        key: replace(each, since=at(-900 - 7 * n)) for n, (key, each) in enumerate(evidence.items())
    }
    shown = devices(gpus, 1, {x.devices[0]: x.id for x in held})
    asked = _waiting(requests, projects, random)
    return view([*held, *asked], shown, policy(1, projects, gpus), evidence)


def gangs(requests: int = REQUESTS, gpus: int = GPUS, projects: int = PROJECTS) -> Snapshot:
    """Half is held; everybody asks for two to sixteen of one node."""
    random = Random(3)
    known = devices(gpus)
    held = [active(n, d.uuid, random, projects) for n, d in enumerate(known) if n % 2]
    shown, evidence = _in_use(held, gpus, 1)
    asked = [
        replace(x, count=random.choice([2, 4, 8, 16])) for x in _waiting(requests, projects, random)
    ]
    return view([*held, *asked], shown, policy(1, projects, gpus), evidence)


def pools(requests: int = REQUESTS, gpus: int = GPUS, projects: int = PROJECTS) -> Snapshot:
    """Six pools of which each class falls back to every other."""
    random = Random(4)
    known = devices(gpus, 6)
    held = [
        active(n, d.uuid, random, projects, gpu_class=f"class{d.pool[4:]}", pool=d.pool)
        for n, d in enumerate(known)
        if n % 4
    ]
    shown, evidence = _in_use(held, gpus, 6)
    asked = [
        replace(x, gpu_class=f"class{random.randrange(6)}")
        for x in _waiting(requests, projects, random)
    ]
    return view([*held, *asked], shown, policy(6, projects, gpus), evidence)


def reserved(requests: int = REQUESTS, gpus: int = GPUS, projects: int = PROJECTS) -> Snapshot:
    """Fifty windows that overlap: some are open, the others come within the day."""
    random = Random(5)
    known = devices(gpus)
    held = [active(n, d.uuid, random, projects) for n, d in enumerate(known) if n % 2]
    shown, evidence = _in_use(held, gpus, 1)
    asked = [
        replace(x, groups=(f"lab{random.randrange(60)}",))
        for x in _waiting(requests, projects, random)
    ]
    windows = tuple(_window(n, gpus, random) for n in range(50))
    return view([*held, *asked], shown, policy(1, projects, gpus), evidence, windows)


def _window(number: int, gpus: int, random: Random) -> Window:
    start = at(random.uniform(-1800, 20_000)).replace(microsecond=0)
    end = start + timedelta(hours=2)
    local = Calendar(start.replace(tzinfo=None), end.replace(tzinfo=None), "UTC")
    made = Reservation(
        id=f"w{number}",
        name=f"lab {number}",
        group=f"lab{number}",
        gpu_class="class0",
        seats=max(1, gpus // 150),
        calendar=local,
        owner="tom",
        created=at(-86400),
        occurrences=(Occurrence(start, start, end),),
    )
    return Window(made, start, start, end, 120.0, 600.0, "pool0")


SITES: dict[str, Callable[..., Snapshot]] = {
    "empty": empty,
    "full, 30 % over quota, 500 due": full,
    "gangs of 2 to 16": gangs,
    "six pools with fall-back": pools,
    "50 overlapping reservations": reserved,
}


def rebuilt(site: Snapshot) -> Iterator[Snapshot]:
    """Yield fresh copies of the same snapshot, with nothing of it worked out."""
    while True:
        yield replace(site)
