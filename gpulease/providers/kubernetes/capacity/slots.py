"""Capacity as slots: one device for each unit of a resource that a node has.

Each slot has a pool, the classes that it can serve, and the pod that takes it.  Kubernetes decides
where a pod lands; a slot's number only makes the units of one node countable.  Pure.  Devices of
DRA are counted in ``slices``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gpulease.policy.catalog import percent
from gpulease.policy.model import Device, GPUClass
from gpulease.policy.pods import AskKind, PodAsk, is_hami, of_card, resource_of, slot_units_of
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.observed.cluster import (
    labels_of,
    leaving,
    lost,
    of_another,
    pool_name,
    product_of,
    taints_of,
)
from gpulease.providers.kubernetes.observed.hami import Shares, shares_of
from gpulease.providers.kubernetes.observed.pods import Granted, Part, PodUse, amount_of
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.providers.kubernetes.pod_resources.nodes import (
    bears,
    compute_of,
    ecc_of,
    fits,
)

FOREIGN = "foreign"
#: Resources that are GPUs whatever the policy says; shown even when no class asks for them yet.
_GPU = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)")
#: No node has more slots than this; a higher number is nonsense.
_MOST = 4096


@dataclass(frozen=True)
class NodeInventory:
    """The slots of one resource on one node.

    ``total`` are there, ``ready`` of them work, as far as the kubelet says; ``units`` of the
    resource make one slot, unless these are ``shares`` under HAMi.  Of so many ``card_parts`` is a
    card, 0 where a slot is a device.
    """

    node: str
    resource: str
    total: int
    ready: int
    units: int
    pool: str
    serves: tuple[str, ...] | None
    compute: tuple[int, int] | None
    ecc: bool | None
    name: str = ""
    memory: int = 0
    lost: bool = False
    leaving: bool = False
    shares: Shares | None = None
    card_parts: int = 0

    def taken(self, asks: Mapping[str, int]) -> Fraction | int:
        """Return how many slots a pod that is nobody's lease takes."""
        if self.shares is not None:
            return self.shares.taken(self.resource, asks)
        return Fraction(asks[self.resource], self.units)

    def card(self, name: str) -> str:
        """Return the card that a slot is a part of, "" where it is a whole device."""
        if not self.card_parts:
            return ""
        prefix, _, number = name.rpartition("/")
        left = int(number)
        room = self.shares.room if self.shares is not None else ()
        for index, parts in enumerate(room):
            if left < parts:
                return f"{prefix}/card-{index}"
            left -= parts
        return f"{prefix}/card-{len(room) + left // self.card_parts}"

    def slot(self, number: int) -> str:
        """Return the identifier of a slot."""
        return f"{self.node}/{self.resource}/{number}"


@dataclass(frozen=True)
class Placement:
    """Every slot as a device, and the slots of each of our pods that is bound."""

    devices: tuple[Device, ...] = ()
    held: Granted = field(default_factory=dict)


class Inventories:
    """What the nodes offer, recomputed only for nodes that changed."""

    def __init__(self) -> None:
        self._classes: tuple[GPUClass, ...] = ()
        self._known: dict[str, tuple[Manifest, tuple[NodeInventory, ...]]] = {}

    def of(
        self, nodes: Iterable[Manifest], classes: Sequence[GPUClass], instance: str
    ) -> tuple[NodeInventory, ...]:
        """Return what the nodes offer, by node and resource.

        A node that belongs to another installation offers nothing.  A resource of a node belongs
        to the pool of the first class, in the policy's order, that its node fits.
        """
        if tuple(classes) != self._classes:
            self._classes, self._known = tuple(classes), {}
        asked = {resource_of(ask_of(each)) for each in classes}
        before, self._known = self._known, {}
        for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
            name = str(node["metadata"]["name"])
            known = before.get(name)
            if known is None or (known[0] is not node and known[0] != node):
                known = (node, tuple(_offered(node, asked, classes, instance)))
            self._known[name] = known
        return tuple(each for _, found in self._known.values() for each in found)


def _offered(
    node: Manifest, asked: Collection[str], classes: Sequence[GPUClass], instance: str
) -> Iterator[NodeInventory]:
    if of_another(node, instance):
        return
    for resource in sorted((node.get("status") or {}).get("capacity") or {}):
        if resource in asked or _GPU.fullmatch(resource):
            found = _inventory(node, resource, classes)
            if found.total:
                yield found


class Placing:
    """Where every slot's occupant is, recomputed only for nodes on which something changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[object, _Filling, list[Device]]] = {}
        self.worked_out = 0  # nodes' resources, in all

    def place(
        self,
        inventories: Sequence[NodeInventory],
        uses: Iterable[PodUse],
        granted: Granted,
    ) -> Placement:
        """Return every slot with what occupies it, and where our pods are.

        Args:
            uses: every pod that takes devices.
            granted: the slots that each part of a held attempt was granted or was found on
                before; a pod that landed on their node keeps them.
        """
        by_node: dict[str, list[PodUse]] = {}
        bound: set[Part] = set()
        for use in sorted(uses, key=lambda each: (each.created, each.uid)):
            if use.node:
                by_node.setdefault(use.node, []).append(use)
                if use.lease:
                    bound.add(use.part)
        waiting: dict[str, dict[str, str]] = {}
        for part, slots in sorted(granted.items()):
            if part not in bound:
                for slot in slots:
                    waiting.setdefault(slot.partition("/")[0], {})[slot] = part.lease
        devices: list[Device] = []
        held: dict[Part, tuple[str, ...]] = {}
        before, self._known = self._known, {}
        for inventory in inventories:
            here, coming = by_node.get(inventory.node, []), waiting.get(inventory.node, {})
            ours = {use.part for use in here}
            kept = {each: granted[each] for each in ours & granted.keys()}
            seen = (inventory, here, kept, coming)
            known = before.get((inventory.node, inventory.resource))
            if known is None or known[0] != seen:
                filling = _Filling(inventory, kept, coming)
                filling.fill(here)
                known = (seen, filling, filling.devices())
                self.worked_out += 1
            self._known[inventory.node, inventory.resource] = known
            devices += known[2]
            held.update(known[1].held)
        return Placement(tuple(devices), held)


class _Filling:
    """One inventory while its slots are given to the pods that are there."""

    def __init__(
        self,
        inventory: NodeInventory,
        granted: Granted,
        waiting: Mapping[str, str],
    ) -> None:
        self._inventory = inventory
        self._granted = granted
        self._waiting = waiting
        self._names = [inventory.slot(number) for number in range(inventory.total)]
        self._taken: dict[str, str] = {}
        self._broken: set[str] = set()
        self._warm: dict[str, str] = {}
        self.held: dict[Part, tuple[str, ...]] = {}

    def fill(self, uses: Sequence[PodUse]) -> None:
        resource = self._inventory.resource
        ours = [use for use in uses if use.lease and resource in use.asks]
        rest = [use for use in uses if not use.lease and resource in use.asks and not use.over]
        others = [use for use in rest if not use.warm]
        elsewhere = [use for use in ours if not self._keep(use)]
        for use in elsewhere:
            self._settle(use)
        taken = sum(self._inventory.taken(use.asks) for use in others)
        for name in self._loose()[: math.ceil(taken)]:
            self._taken[name] = FOREIGN
        self._stand_ready([use for use in rest if use.warm])
        broken = max(0, self._inventory.total - self._inventory.ready)
        # What does not work is none that a pod of ours runs on or waits for, if there are others.
        order = sorted(self._loose(), key=lambda name: (name in self._waiting, name in self._warm))
        self._broken = set(order[:broken])

    def devices(self) -> list[Device]:
        inventory = self._inventory
        return [
            Device(
                uuid=name,
                pool=inventory.pool,
                name=inventory.name,
                memory=inventory.memory,
                healthy=name not in self._broken,
                lost=inventory.lost,
                occupied_by=self._taken.get(name) or self._waiting.get(name),
                node=inventory.node,
                leaving=inventory.leaving,
                serves=inventory.serves,
                compute=inventory.compute,
                ecc=inventory.ecc,
                warm=self._warm.get(name, ""),
                card=inventory.card(name),
                card_parts=inventory.card_parts,
            )
            for name in self._names
        ]

    def _stand_ready(self, uses: Sequence[PodUse]) -> None:
        """Show where pods stand ready: on what nobody takes or waits for, which stays free."""
        free = [name for name in self._loose() if name not in self._waiting]
        self._warm = dict(zip(free, (use.warm for use in uses), strict=False))

    def _keep(self, use: PodUse) -> bool:
        """Leave a pod on the slots that it was granted, when it landed on their node."""
        wanted = self._granted.get(use.part, ())
        if len(wanted) != use.count or not all(self._is_free(name) for name in wanted):
            return False
        self._take(use, wanted)
        return True

    def _is_free(self, name: str) -> bool:
        prefix, _, number = name.rpartition("/")
        held = self._inventory
        if prefix != f"{held.node}/{held.resource}" or not number.isdecimal():
            return False
        # Capacity may shrink under a pod that runs there: its slot stays while it does.
        while len(self._names) <= int(number) < _MOST:
            self._names.append(self._inventory.slot(len(self._names)))
        return name not in self._taken

    def _settle(self, use: PodUse) -> None:
        """Give a pod that landed elsewhere than was thought slots that nobody waits for."""
        free = [name for name in self._names if name not in self._taken]
        free.sort(key=lambda name: name in self._waiting)
        if self._inventory.card_parts:
            free = self._of_one_card(free, use.count)
        while len(free) < use.count:
            self._names.append(self._inventory.slot(len(self._names)))
            free.append(self._names[-1])
        self._take(use, tuple(sorted(free[: use.count], key=self._names.index)))

    def _of_one_card(self, free: Sequence[str], count: int) -> list[str]:
        """Return free slots, those of the fullest card that has enough room first."""
        loose = (name for name in free if name not in self._waiting)
        room = Counter(self._inventory.card(name) for name in loose)
        return sorted(
            free,
            key=lambda name: (
                name in self._waiting,
                room[self._inventory.card(name)] < count,
                room[self._inventory.card(name)],
                self._inventory.card(name),
            ),
        )

    def _take(self, use: PodUse, names: tuple[str, ...]) -> None:
        self._taken.update(dict.fromkeys(names, use.lease))
        self.held[use.part] = names

    def _loose(self) -> list[str]:
        """Return the slots that no pod of ours takes, the last first, granted ones at the end."""
        loose = [name for name in reversed(self._names) if name not in self._taken]
        return sorted(loose, key=lambda name: name in self._waiting)


def serving(
    node: Manifest, classes: Sequence[GPUClass], resource: str
) -> tuple[str, tuple[str, ...] | None, PodAsk | None]:
    """Return the pool of a node's resource, the classes that it serves, and the first one's ask.

    Without any class that fits, the pool is named after the model, and serves nobody.
    """
    marks = labels_of(node)
    asking = [each for each in classes if resource_of(ask_of(each)) == resource]
    fitting = [
        each
        for each in asking
        if ask_of(each).kind is not AskKind.DRA
        and fits(ask_of(each), marks)
        and (not each.parts or is_hami(ask_of(each)))
    ]
    if not fitting:
        return pool_name(product_of(node)[0] or resource), None, None
    pool = fitting[0].pool
    taints = taints_of(node)
    serves = tuple(
        each.name for each in fitting if each.pool == pool and bears(ask_of(each), taints)
    )
    return pool, serves, ask_of(fitting[0])


def _inventory(node: Manifest, resource: str, classes: Sequence[GPUClass]) -> NodeInventory:
    status = node.get("status") or {}
    pool, serves, ask = serving(node, classes, resource)
    units = max(1, slot_units_of(ask)) if ask else 1
    there, working = (
        amount_of((status.get(kind) or {}).get(resource, 0)) // units
        for kind in ("capacity", "allocatable")
    )
    card_parts = next((each.card_parts for each in classes if each.pool == pool), 0)
    one = of_card(ask, percent(1, card_parts)) if ask and card_parts else ask
    shares = shares_of(node, resource, one) if one else None
    name, memory = product_of(node)
    return NodeInventory(
        node=str(node["metadata"]["name"]),
        resource=resource,
        total=shares.total if shares else there,
        ready=shares.ready if shares else working,
        units=units,
        shares=shares,
        pool=pool,
        serves=serves,
        compute=compute_of(labels_of(node)),
        ecc=ecc_of(labels_of(node)),
        name=name,
        memory=memory,
        lost=lost(node),
        leaving=leaving(node),
        card_parts=card_parts,
    )
