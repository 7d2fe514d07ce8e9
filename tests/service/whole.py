"""Service, store and provider together on a virtual clock, with faults in each of them.

The store is a real one and so is the loop; the provider keeps processes that outlive the service,
as pods do.  What must hold always is checked by ``check``, what must come in the end by ``heal``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.gpus.base import Sample
from gpulease.policy import lifecycle
from gpulease.policy.admission_check import Ask
from gpulease.policy.document import default_document, dump
from gpulease.policy.model import Device, Lease, LeaseState, Observed, Snapshot, TimeOuts
from gpulease.service.control_loop.evidence import EvidenceCollector
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.leases.requests import Asked, RequestBatcher
from gpulease.service.metrics import Metrics
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.store import Change, Store
from tests.store.tables import lay_tables

START = datetime(2026, 1, 1, tzinfo=UTC)
OUTS = TimeOuts(
    idle=60, idle_under_pressure=30, quiet=120, warning=10, warm_up=0, claim=60, drain_max=20,
    interrupt_grace=5, minimum_runtime=0, hard_length=1800, start_max=30, unknown_hold=60,
)  # fmt: skip
NUMBER = 3
HOLDING = lifecycle.HOLDING


class Faulty(Store):
    """A store whose next writes fail, before anything of them is written."""

    failing = 0

    @contextmanager
    def _write(self) -> Iterator[Any]:
        if self.failing:
            self.failing -= 1
            raise GPULeaseError("store_unavailable", "The disk is full.", status=503)
        with super()._write() as session:
            yield session


@dataclass
class Process:
    """A supervisor that runs, whoever looks."""

    lease_id: str
    attempt: int
    devices: tuple[str, ...]
    told: str = ""  # what it was told last

    def tell(self, message: Any) -> None:
        if message["type"] in ("warn", "drain", "clear", "resume"):
            self.told = message["type"]

    def hang_up(self) -> None:
        """Nothing: it comes back when it is asked to connect."""


class Machines:
    """Devices and processes; they outlive every service."""

    def __init__(self) -> None:
        self.running: dict[str, Process] = {}
        self.lost: set[str] = set()
        self.known = True
        self.failing: set[str] = set()  # calls of the provider that fail


class Place:
    """A provider over the machines, as one service sees them."""

    name = "test"
    home_memory = 0.0
    grows = False
    several_nodes = False
    server_started = None
    warm_pods = None

    def __init__(self, machines: Machines, links: SupervisorConnections) -> None:
        self._machines = machines
        self._links = links
        self._held: dict[str, tuple[Lease, bool]] = {}  # and whether it is stopped

    def _fail(self, call: str) -> None:
        if call in self._machines.failing:
            raise RuntimeError(f"{call} fails")

    async def devices(self) -> Sequence[Device]:
        self._fail("devices")
        if not self._machines.known:
            raise OSError("the capacity is not known")
        holder = {u: p.lease_id for p in self._machines.running.values() for u in p.devices}
        return [
            Device(f"G{n}", "any", node="n", lost=f"G{n}" in self._machines.lost,
                   occupied_by=holder.get(f"G{n}"))
            for n in range(NUMBER)
        ]  # fmt: skip

    async def observe(self) -> Sequence[Observed]:
        self._fail("observe")
        shown = []
        for lease_id, (lease, stopped) in list(self._held.items()):
            process = self._machines.running.get(lease_id)
            alive = process is not None and process.attempt == lease.attempt
            if not alive and stopped:
                del self._held[lease_id]
                continue
            link = self._links.state(lease_id)
            link = link if link is not None and link.attempt == lease.attempt else None
            connected = alive and link is not None and link.connected
            shown.append(
                Observed(lease_id, lease.attempt, connected=connected, gone=not alive,
                         drained=link.drained if link else "", in_use=connected)
            )  # fmt: skip
        return shown

    async def start(self, lease: Lease) -> None:
        self._fail("start")
        known = self._held.get(lease.id)
        process = self._machines.running.get(lease.id)
        if known is None or known[0].attempt != lease.attempt:
            if process is not None and process.attempt != lease.attempt:
                del self._machines.running[lease.id]
                process = None
            if process is None and lease.state is LeaseState.STARTING:
                made = Process(lease.id, lease.attempt, lease.devices)
                self._machines.running[lease.id] = made
        self._held[lease.id] = (lease, False)

    async def stop(self, lease: Lease) -> None:
        self._fail("stop")
        self._machines.running.pop(lease.id, None)
        self._held[lease.id] = (lease, True)

    def bounds(self, requests: Sequence[Lease]) -> Sequence[Any]:
        return ()

    def preferred_node(self, lease: Lease) -> str:
        return ""

    def image(self, gpu_class: Any, course: str) -> str:
        return ""

    def recall_home(self, *_: Any) -> None:
        """Nothing."""


class Whole:
    """The service of now over its database, and the machines below it."""

    def __init__(self, folder: Path) -> None:
        self.machines = Machines()
        self.now = START
        self._address = lay_tables(folder / "leases.sqlite")
        self._first = folder / "policy.yaml"
        devices = [Device(f"G{n}", "any") for n in range(NUMBER)]
        found = default_document(devices, OUTS)
        classes = tuple(replace(each, max_count=2) for each in found.classes)
        self._first.write_text(dump(replace(found, classes=classes)))
        self.seen: dict[str, Lease] = {}

    async def open(self) -> None:
        self.store = Faulty.open(self._address)
        self.ledger = Ledger(self.store, lambda *_: None)
        self.links, self.watch = SupervisorConnections(lambda: None), EvidenceCollector()
        policies = Policies(self.ledger, lambda: None)
        place: Any = Place(self.machines, self.links)
        self.loop = Reconciler(
            self.ledger, place, self.links, self.watch, policies, metrics=Metrics(),
            publish=self._publish,
            clock=lambda: self.now,
        )  # fmt: skip
        self.loop.workqueue._back_off = 0.001
        self.turns = RequestBatcher(self.ledger, self.loop)
        await self.ledger.load(self.now)
        await policies.open((), self._first)
        await self.loop.recover()

    async def _publish(self, _snapshot: Snapshot) -> None:
        self.ledger.forget(self.now, self.loop.observed_state.observed)

    async def close(self) -> None:
        await self.loop.close()
        self.ledger.close()

    async def restart(self) -> None:
        """Another service takes over; a store that fails does so for the old one only."""
        await self.close()
        await self.open()

    async def ask(self, user: str, count: int) -> None:
        with suppress(GPULeaseError):
            await self.turns.ask(Asked(Ask(user, "", count=count), user))

    async def say(self, lease: Lease, word: str) -> None:
        """Give a lease back, or keep it, by its holder's word."""
        outs = lifecycle.time_outs_of(self.loop.policies.current, lease)
        act = lifecycle.give_back if word == "returned" else lifecycle.keep
        with suppress(GPULeaseError):
            await self.turns.change(
                lambda: Change(lease, act(lease, self.now, outs), lease.user, word)
            )

    async def tick(self, seconds: float) -> None:
        """Let time pass and make a round, as the loop does: what fails is tried again."""
        self.now += timedelta(seconds=seconds)
        for work in self.loop.workqueue._work.values():
            work.changed.set()  # the rest after a failure is real time: here it has passed
        with suppress(GPULeaseError, RuntimeError):
            await self.loop.round()
        await self.loop.workqueue.settled()

    def connect(self) -> None:
        """Let every supervisor connect that is not connected."""
        for process in self.machines.running.values():
            lease, link = self._lease_of(process), self.links.state(process.lease_id)
            if lease is None or (link and link.connected and link.attempt == process.attempt):
                continue
            key = f"{process.lease_id}-{process.attempt}"
            hello: Any = {"type": "hello", "address": "tcp://x", "public_key": key}
            self.links.connected(lease, process, hello)

    def answer(self, result: str) -> None:
        """Let every supervisor that drains answer."""
        for process in self.machines.running.values():
            link = self.links.state(process.lease_id)
            if link is not None and link.connected and process.told == "drain":
                self.links.heard(process.lease_id, {"type": "drained", "result": result})

    def use(self, *, busy: bool) -> None:
        """Let each lease be seen at this moment, used or not."""
        for process in self.machines.running.values():
            life: Any = {"at": self.now.isoformat(), "cells": int(busy), "threads": 0,
                         "processes": 0, "use": 0.5 * busy, "transfers": False}  # fmt: skip
            self.watch.hear(process.lease_id, [life], self.now)
            used = 0.9 if busy else 0.0
            self.watch.sampled([Sample(uuid, self.now, used) for uuid in process.devices])

    def check(self) -> None:
        """What holds at every moment."""
        leases = list(self.ledger.leases.values())
        holding = [each for each in leases if each.state in HOLDING]
        granted = [uuid for each in holding for uuid in each.devices]
        assert len(granted) == len(set(granted)), "no device is granted twice"
        running = [u for each in self.machines.running.values() for u in each.devices]
        assert len(running) == len(set(running)), "no two processes run on one device"
        for process in self.machines.running.values():
            others = {u for x in holding if x.id != process.lease_id for u in x.devices}
            assert others.isdisjoint(process.devices), "nothing is granted that is still used"
        stored = {each.id: each for each in self.store.live()}
        for lease in leases:
            if lease.state is not LeaseState.ENDED:
                assert stored.get(lease.id) == lease, "what is true is stored"
            known = self.seen.get(lease.id)
            assert known is None or known.version <= lease.version, "nothing is taken back"
            if known is not None and known.state is LeaseState.ENDED:
                assert known == lease, "an end stays as it is"
            assert (lease.end_reason is not None) == (lease.state is LeaseState.ENDED)
            self.seen[lease.id] = lease

    async def heal(self) -> None:
        """All faults are over and nobody uses anything: everything ends, in bounded time."""
        self.store.failing, self.machines.known = 0, True
        self.machines.failing.clear()
        self.machines.lost.clear()
        for _ in range(400):  # samples are 5 s apart: older than 10 s they count for nothing
            self.connect()
            self.answer("done")
            self.use(busy=False)
            await self.tick(5)
            self.check()
            live = self.ledger.live()
            if not live and not self.machines.running and not self.loop.workqueue.alerts():
                return
        raise AssertionError((self.ledger.live(), self.machines.running, self.loop.alerts))

    def _lease_of(self, process: Process) -> Lease | None:
        lease = self.ledger.leases.get(process.lease_id)
        return lease if lease is not None and lease.attempt == process.attempt else None
