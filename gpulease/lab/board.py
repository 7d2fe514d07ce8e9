"""What this server knows of its leases and kernels.  Pure: no I/O, time passed in.

It keeps the newest view of each lease, which kernel ran a cell last, and which kernel a page's
lease is for.  Grants are kept apart: they hold the supervisor's credential and are for nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import cast

from gpulease.protocol.reports import KernelReport
from gpulease.protocol.service import ClassView, GrantView, LeaseView

#: States in which a page's lease needs to know its kernel.
_SERVING = ("active", "warned", "draining")
_GRANTED = ("starting", "active", "warned", "draining")


@dataclass
class Board:
    """One server's leases, classes and kernels."""

    leases: dict[str, LeaseView] = field(default_factory=dict)
    grants: dict[str, GrantView] = field(default_factory=dict)
    classes: list[ClassView] = field(default_factory=list)
    up: bool = False
    last_cell: dict[str, datetime] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    sticky: set[str] = field(default_factory=set)  # kernels whose cells all run on the GPU
    chosen: dict[str, str] = field(default_factory=dict)  # lease -> kernel of a page's ask
    users: dict[str, set[str]] = field(default_factory=dict)  # lease -> kernels that asked for it

    def take_snapshot(self, leases: Iterable[LeaseView], classes: Iterable[ClassView]) -> list[str]:
        """Replace everything; return the ids of leases that are gone."""
        before = set(self.leases)
        self.leases, self.grants = {}, {}
        self.classes = list(classes)
        for lease in leases:
            self.take_lease(lease)
        gone = sorted(before - set(self.leases))
        for lease_id in gone:
            self.chosen.pop(lease_id, None)
            self.users.pop(lease_id, None)
        return gone

    def take_lease(self, lease: LeaseView) -> LeaseView:
        """Keep the newest view of a lease; return it as kernels may see it."""
        grant = lease.get("grant")
        shown = cast("LeaseView", {k: v for k, v in lease.items() if k != "grant"})
        if lease["state"] == "ended":
            self.leases.pop(lease["id"], None)
            self.grants.pop(lease["id"], None)
            self.chosen.pop(lease["id"], None)
            self.users.pop(lease["id"], None)
            return shown
        self.leases[lease["id"]] = shown
        if grant is not None and lease["state"] in _GRANTED:
            self.grants[lease["id"]] = grant
        else:
            self.grants.pop(lease["id"], None)
        return self.shown(lease["id"])

    def shown(self, lease_id: str) -> LeaseView:
        """Return a lease as kernels see it: a page's lease names the kernel it is for."""
        lease = self.leases[lease_id]
        if lease["kernel_id"] is not None or lease["state"] not in _SERVING:
            return lease
        if lease_id not in self.chosen:
            latest = self.latest_kernel()
            if latest is None:
                return lease
            self.chosen[lease_id] = latest
        return cast("LeaseView", {**lease, "kernel_id": self.chosen[lease_id]})

    def all_shown(self) -> list[LeaseView]:
        """Return every lease as kernels see it."""
        return [self.shown(lease_id) for lease_id in self.leases]

    def cell(self, kernel_id: str, busy: bool, now: datetime) -> list[str]:
        """A kernel began or ended a cell; return ids of page leases that found their kernel."""
        self.last_cell[kernel_id] = now
        if busy:
            self.busy.add(kernel_id)
        else:
            self.busy.discard(kernel_id)
        waiting = [
            lease["id"]
            for lease in self.leases.values()
            if lease["kernel_id"] is None
            and lease["state"] in _SERVING
            and lease["id"] not in self.chosen
        ]
        return [lease_id for lease_id in waiting if self.shown(lease_id)["kernel_id"]]

    def turn_sticky(self, kernel_id: str, *, on: bool) -> None:
        """A kernel runs every cell on the GPU, or does so no longer."""
        if on:
            self.sticky.add(kernel_id)
        else:
            self.sticky.discard(kernel_id)

    def forget_kernel(self, kernel_id: str) -> None:
        """A kernel restarted or ended: nothing is known of it but that it was sticky.

        A restarted kernel has the same id, and reads that from the next snapshot.
        """
        self.last_cell.pop(kernel_id, None)
        self.busy.discard(kernel_id)
        self.chosen = {k: v for k, v in self.chosen.items() if v != kernel_id}

    def use(self, lease_id: str, kernel_id: str) -> None:
        """A kernel asked for a lease, or connects to it."""
        self.users.setdefault(lease_id, set()).add(kernel_id)

    def left_by(self, kernel_id: str) -> list[str]:
        """A kernel is gone for good; return the leases of kernels that no other one uses.

        What a page asked for is for whichever notebook comes next.
        """
        left = []
        for lease_id, users in self.users.items():
            if kernel_id in users:
                users.discard(kernel_id)
                lease = self.leases.get(lease_id)
                if not users and (lease is None or lease["kernel_id"] is not None):
                    left.append(lease_id)
        return left

    def latest_kernel(self) -> str | None:
        """Return the kernel that ran a cell last."""
        return max(self.last_cell, key=lambda kernel: self.last_cell[kernel], default=None)

    def kernels(
        self, alive: Iterable[str], notebooks: Mapping[str, str] = MappingProxyType({})
    ) -> list[KernelReport]:
        """Return the report on the kernels that live; ``notebooks``: kernel -> path."""
        living = sorted(alive)
        self.sticky.intersection_update(living)
        leases: dict[str | None, list[str]] = {}
        for lease in self.all_shown():
            leases.setdefault(lease["kernel_id"], []).append(lease["id"])
        reports = []
        for kernel_id in living:
            last = self.last_cell.get(kernel_id)
            when = last.isoformat() if last is not None else None
            reports.append(
                KernelReport(
                    id=kernel_id,
                    last_cell=when,
                    busy=kernel_id in self.busy,
                    notebook=notebooks.get(kernel_id, ""),
                    leases=leases.get(kernel_id, []),
                )
            )
        return reports

    def working(self, now: datetime, cap: float) -> bool:
        """Tell whether a lease is busy and began less than ``cap`` seconds ago."""
        for lease in self.leases.values():
            since = lease["active_since"]
            if lease["verdict"] != "busy" or since is None:
                continue
            if (now - datetime.fromisoformat(since)).total_seconds() < cap:
                return True
        return False
