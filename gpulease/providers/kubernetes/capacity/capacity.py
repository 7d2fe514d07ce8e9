"""Capacity as the planner sees it: slots and claimed devices, with what failing devices put out.

It puts nodes, pods, slices and the agents' words together, and makes nothing while nothing
changed.  With dynamic resource allocation each device of a ResourceSlice has a name of its own, so
where a pod landed is known exactly.  Not to be trusted while the cluster is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpulease.policy.model import Device, GPUClass
from gpulease.policy.pods import AskKind
from gpulease.providers.kubernetes.api.client import Manifest, UnavailableError
from gpulease.providers.kubernetes.capacity import slots
from gpulease.providers.kubernetes.capacity.slots import FOREIGN, Placement
from gpulease.providers.kubernetes.capacity.usage import AgentUsage, Claimed, LeasePod
from gpulease.providers.kubernetes.observed.cluster import (
    Cluster,
    labels_of,
    leaving,
    lost,
    of_another,
    pool_name,
    taints_of,
)
from gpulease.providers.kubernetes.observed.pods import Granted, Part, PodUse
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.providers.kubernetes.pod_resources.claims import (
    device_compute,
    device_fits,
    device_memory,
    device_text,
)
from gpulease.providers.kubernetes.pod_resources.nodes import bears, ecc_of

#: Driver, the driver's pool, name: what a claim's result says.
_Name = tuple[str, str, str]


def published(
    slices: Iterable[Manifest],
    claims: Iterable[Manifest],
    nodes: Iterable[Manifest],
    *,
    uses: Iterable[PodUse],
    classes: Sequence[GPUClass],
    granted: Granted,
    instance: str,
) -> Placement:
    """Return every device that node-local slices publish, and those of each of our pods.

    Without a class of kind ``dra`` there is none: the same cards may be shown by a device plugin.
    """
    asking = [each for each in classes if ask_of(each).kind is AskKind.DRA]
    if not asking:
        return Placement()
    pods = {use.uid: use for use in uses}
    holders = _holders(claims, pods)
    names: dict[_Name, str] = {}
    found: list[Device] = []
    by_name = {str(node["metadata"]["name"]): node for node in nodes}
    waiting = {slot: part.lease for part, slots in sorted(granted.items()) for slot in slots}
    for each in _newest(slices):
        node = by_name.get(str(each["spec"].get("nodeName", "")))
        if node is None or of_another(node, instance):
            continue
        for published_device in each["spec"].get("devices") or []:
            device, name = _device(each, published_device, node, asking)
            names[name] = device.uuid
            holder = holders.get(name)
            occupant = waiting.get(device.uuid)
            if holder is not None:
                occupant = holder.lease or FOREIGN
            found.append(replace(device, occupied_by=occupant))
    held: dict[Part, tuple[str, ...]] = {}
    for name, use in sorted(holders.items()):
        if use.lease and name in names:
            held[use.part] = (*held.get(use.part, ()), names[name])
    return Placement(tuple(sorted(found, key=lambda each: each.uuid)), held)


def _device(
    owner: Manifest, device: Mapping[str, Any], node: Manifest, asking: Sequence[GPUClass]
) -> tuple[Device, _Name]:
    spec = owner["spec"]
    driver, pool_of_driver = str(spec["driver"]), str((spec.get("pool") or {}).get("name", ""))
    where = str(node["metadata"]["name"])
    name = str(device["name"])
    inside = name if pool_of_driver in ("", where) else f"{pool_of_driver}:{name}"
    fitting = [each for each in asking if device_fits(ask_of(each), driver, device)]
    pool = fitting[0].pool if fitting else pool_name(driver)
    effects = {taint.get("effect") for taint in device.get("taints") or []}
    serves = tuple(
        each.name
        for each in fitting
        if each.pool == pool and not effects and bears(ask_of(each), taints_of(node))
    )
    shown = Device(
        uuid=f"{where}/{driver}/{inside}",
        pool=pool,
        name=device_text(device, "productName", driver),
        memory=device_memory(device, driver),
        healthy="NoExecute" not in effects,
        lost=lost(node),
        node=where,
        leaving=leaving(node),
        serves=serves,
        compute=device_compute(device, driver),
        ecc=ecc_of(labels_of(node)),
    )
    return shown, (driver, pool_of_driver, name)


def _newest(slices: Iterable[Manifest]) -> list[Manifest]:
    """Return the slices of each driver's pool that are of its newest generation."""
    kept: dict[tuple[str, str], tuple[int, list[Manifest]]] = {}
    for each in sorted(slices, key=lambda s: str(s["metadata"]["name"])):
        spec = each["spec"]
        pool = spec.get("pool") or {}
        key = (str(spec["driver"]), str(pool.get("name", "")))
        generation = int(pool.get("generation", 0))
        known = kept.get(key)
        if known is None or generation > known[0]:
            kept[key] = (generation, [each])
        elif generation == known[0]:
            known[1].append(each)
    return [each for _, found in kept.values() for each in found]


def _holders(claims: Iterable[Manifest], pods: Mapping[str, PodUse]) -> dict[_Name, PodUse]:
    """Return which pod holds each allocated device; a pod that is not known is somebody else's."""
    unknown = PodUse(("", ""), "", "", "")
    held = {}
    for claim in claims:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
        users = [
            pods.get(str(each.get("uid")), unknown) for each in status.get("reservedFor") or []
        ]
        user = next((use for use in users if use.lease), users[0] if users else unknown)
        for result in results:
            if not result.get("adminAccess"):
                name = (str(result["driver"]), str(result["pool"]), str(result["device"]))
                held[name] = user
    return held


class Capacity:
    """What is there, who holds it and where our pods are, as of the last look."""

    def __init__(self, cluster: Cluster, usage: AgentUsage) -> None:
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
        shown = published(
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
