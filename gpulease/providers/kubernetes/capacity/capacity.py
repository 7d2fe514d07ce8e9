"""Capacity as the planner sees it: slots and claimed devices, with what failing devices put out.

Owns the putting together of nodes, pods, slices and the agents' words, and that nothing is made
anew while nothing changed.  Refuses to be trusted while the cluster is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpulease.policy.model import Device, GPUClass
from gpulease.policy.pods import AskKind
from gpulease.providers.kubernetes.api.client import UnavailableError
from gpulease.providers.kubernetes.asks.ask import ask_of
from gpulease.providers.kubernetes.asks.claims import device_text
from gpulease.providers.kubernetes.capacity import slices, slots
from gpulease.providers.kubernetes.capacity.usage import Claimed, LeasePod, Usage
from gpulease.providers.kubernetes.observed.cluster import Cluster
from gpulease.providers.kubernetes.observed.parts import Granted, Part


class Capacity:
    """What is there, who holds it and where our pods are, as of the last look."""

    def __init__(self, cluster: Cluster, usage: Usage) -> None:
        self._cluster = cluster
        self._usage = usage
        self._known: tuple[object, ...] = ()
        self._inventories, self._placing = slots.Inventories(), slots.Placing()
        self._placed: tuple[Device, ...] = ()
        self.devices: tuple[Device, ...] = ()
        self.held: Granted = {}
        self._told: frozenset[Part] = frozenset()

    def look(
        self,
        classes: Sequence[GPUClass],
        granted: Granted,
        now: datetime,
    ) -> tuple[Device, ...]:
        """Return every device.

        Args:
            granted: what each part of a held attempt was granted.

        Raises:
            UnavailableError: the cluster is not known at present.
        """
        claims = any(ask_of(each).kind is AskKind.DRA for each in classes)
        problem = self._cluster.problem(claims=claims)
        if problem:
            raise UnavailableError(problem)
        known = (self._cluster.version, tuple(classes), tuple(sorted(granted.items())))
        if known != self._known:
            self._place(classes, granted)
            self._known = known
        self.devices = self._without_faults(now)
        return self.devices

    def lease_pods(self) -> list[LeasePod]:
        """Return the bound pods of leases with their slots."""
        found = []
        for use in self._cluster.pods.uses:
            held = self.held.get(use.part, ())
            if use.lease and use.node and held:
                found.append(LeasePod(use.uid, *use.key, use.node, held))
        return found

    def claimed(self) -> dict[Claimed, str]:
        """Return the driver's identifiers of the devices that slices publish."""
        found = {}
        for each in self._cluster.slices:
            spec = each["spec"]
            driver, pool = str(spec["driver"]), str((spec.get("pool") or {}).get("name", ""))
            for device in spec.get("devices") or []:
                uuid = device_text(device, "uuid", driver)
                if uuid:
                    found[driver, pool, str(device["name"])] = uuid
        return found

    def _place(self, classes: Sequence[GPUClass], granted: Granted) -> None:
        cluster = self._cluster
        uses = cluster.pods.uses
        # Where a pod was found once it stays, whatever was granted: it does not move.  One that was
        # seen before anybody told of its lease (we were restarted) is where the record says.
        there = {use.part for use in uses if use.lease and use.node}
        told = self._told | (self.held.keys() - granted.keys())
        sticky = {key: self.held[key] for key in self.held.keys() & there & told}
        self._told = frozenset(granted)
        wanted = {**granted, **sticky}
        inventories = self._inventories.of(cluster.nodes, classes, cluster.instance)
        placed = self._placing.place(inventories, uses, wanted)
        shown = slices.published(
            cluster.slices,
            cluster.claims,
            cluster.nodes,
            uses=uses,
            classes=classes,
            granted={key: names for key, names in granted.items() if key not in there},
            instance=cluster.instance,
        )
        self._placed = (*placed.devices, *shown.devices)
        self.held = {**placed.held, **shown.held}

    def _without_faults(self, now: datetime) -> tuple[Device, ...]:
        faults = self._usage.faults(self.lease_pods(), now, self.claimed())
        if not faults.slots and not faults.nodes:
            return self._placed
        return tuple(
            replace(
                device,
                healthy=device.healthy and device.uuid not in faults.slots,
                serves=() if device.node in faults.nodes else device.serves,
            )
            for device in self._placed
        )
