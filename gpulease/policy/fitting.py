"""Which devices can serve a request together, and what it demands of each.

Four rules: a device serves the classes that it can serve, the devices of one request stand in
one place (of one that asks for several nodes, each node's equal part does), of those that would
do the least versatile are taken, and no whole card is opened for a part while another one has room
for it.  A place is a node, or the card that devices are parts of.  What is free, and for whom, is
decided elsewhere.

A request may demand more of its devices than their class says: ``memory>=20GiB, cc>=8.0, ecc``.
What is not known of a device it does not have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice

from gpulease.policy.model import Device, Lease
from gpulease.sizes import format_size, parse_size


@dataclass(frozen=True)
class Preference:
    """What decides between devices that would do.

    Attributes:
        devices: identifiers of those that are liked best.
        node: the node that is liked best, "" for none.
        versatile: of ``versatility``, where devices are not all alike; within a node the least
            versatile stand first.
    """

    devices: frozenset[str] = frozenset()
    node: str = ""
    versatile: Mapping[str, int] = field(default_factory=dict)


_NO_PREFERENCE = Preference()


def suits(gpu_class: str, device: Device, needs: str = "") -> bool:
    """Whether a device can serve a class of its pool, and has what is demanded besides."""
    if device.serves is not None and gpu_class not in device.serves:
        return False
    return not needs or parse_needs(needs).met_by(device.memory, device.compute, device.ecc)


def versatility(devices: Iterable[Device]) -> Mapping[str, int]:
    """Return how much each device is good for beside the others, from 0; nothing where all alike.

    One that fewer classes can use, then one with less memory and of an older make, is good for
    less: it is taken first, so that what only a better one can serve still finds it free.
    """
    found = {device.uuid: _good_for(device) for device in devices}
    steps = {each: n for n, each in enumerate(sorted(set(found.values())))}
    return {uuid: steps[each] for uuid, each in found.items()} if len(steps) > 1 else {}


def _good_for(device: Device) -> tuple[bool, int, int, tuple[int, int], bool]:
    all_classes, some = device.serves is None, len(device.serves or ())
    return all_classes, some, device.memory, device.compute or (0, 0), device.ecc is True


def by_node(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """Return the devices of each node, or of each card where they are parts, in the given order."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(device.place, []).append(device)
    return found


def for_request(
    nodes: Mapping[str, Sequence[Device]],
    request: Lease,
    preferred: Preference = _NO_PREFERENCE,
) -> list[Device]:
    """Return the devices of a request by the rank of its nodes, or as many as can be had.

    Parts that fit in one machine stay together there: what is fewer machines talks faster.

    Args:
        nodes: what it may take on each, in the order in which it is taken.
        request: for ``count`` devices, divided among its ``nodes``.
        preferred: decides between nodes as in ``of_one_node``.
    """
    if request.nodes == 1:
        return of_one_node(nodes, request.count, preferred)
    each = request.per_node
    left = {node: list(there) for node, there in nodes.items()}
    found: list[Device] = []
    while len(found) < request.count:
        whole = {n: there[: len(there) // each * each] for n, there in left.items()}
        fitting = {node: there for node, there in whole.items() if there}
        lacks = request.count - len(found)
        taken = of_one_node(fitting, lacks, preferred)
        if not taken:
            break
        found += taken
        del left[taken[0].node][: len(taken)]
    begun = sorted(left, key=lambda node: (-len(left[node]), node))
    for node in begun[: (request.count - len(found)) // each]:
        found += left[node][:each]
    return found


def of_one_node(
    nodes: Mapping[str, Sequence[Device]],
    count: int,
    preferred: Preference = _NO_PREFERENCE,
) -> list[Device]:
    """Return up to ``count`` devices of one node, as many as can be had.

    Of the nodes that have enough, the one with most of the preferred devices is taken, then the
    preferred node, then a card that others have parts of before a whole one, then the one with the
    least versatile devices, then the one where the fewest stay behind, so that whole nodes and
    cards stay for those who want several.

    Args:
        nodes: the devices of each, in the order in which they are taken.
        count: how many are wanted.
        preferred: what decides.
    """
    wanted, versatile = preferred.devices, preferred.versatile
    if not wanted and not versatile and not of_cards(nodes):
        return _nearest_of(nodes, count, preferred.node)

    def rank(node: str) -> tuple[int, int, bool, bool, int, int, str]:
        there = nodes[node]
        liked = sum(device.uuid in wanted for device in there) if wanted else 0
        far = not preferred.node or not there or there[0].node != preferred.node
        opens = bool(there) and 0 < there[0].card_parts <= len(there)
        good = max((versatile.get(each.uuid, 0) for each in there[:count]), default=0)
        return -min(count, len(there)), -min(count, liked), far, opens, good, len(there), node

    best = min(nodes, key=rank, default=None)
    return list(nodes[best][:count]) if best is not None else []


def of_cards(nodes: Mapping[str, Sequence[Device]]) -> bool:
    """Whether devices are parts of cards: a pool's all are, or none."""
    return any(there[0].card for there in islice(nodes.values(), 1) if there)


def warm_first(
    nodes: Mapping[str, Sequence[Device]],
    request: Lease,
    preferred: Preference = _NO_PREFERENCE,
) -> list[Device]:
    """Return what ``for_request`` does: where a pod of its class stands ready if it
    can be, and where one of another class does, which would have to go, only if it must be.
    """
    count, own, kept = request.count, request.gpu_class, preferred.devices
    left = {
        node: good
        for node, there in nodes.items()
        if (good := [d for d in there if d.warm in ("", own) or d.uuid in kept])
    }
    ready = {d.uuid for there in left.values() for d in there if d.warm} if count == 1 else ()
    chosen = for_request(left, request, replace(preferred, devices=kept.union(ready)))
    if len(chosen) == count:
        return chosen
    return for_request(nodes, request, preferred)


def _nearest_of(
    nodes: Mapping[str, Sequence[Device]], count: int, preferred_node: str
) -> list[Device]:
    """Return what ``of_one_node`` does where no device is preferred: most often, so in one go."""
    if preferred_node and len(nodes.get(preferred_node, ())) >= count:
        return list(nodes[preferred_node][:count])
    most, best, least = 0, "", 0
    for node, there in nodes.items():
        number = len(there)
        enough = min(number, count)
        if enough < most or not enough:
            continue
        if (
            enough > most
            or node == preferred_node
            or (best != preferred_node and (number, node) < (least, best))
        ):
            most, best, least = enough, node, number
    return list(nodes[best][:count]) if most else []


def room(devices: Iterable[Device], count: int, parts: int = 1) -> Mapping[str, int]:
    """Return how many equal parts of ``count`` devices fit on each node that has room for one.

    Nothing where all ``parts`` do not.
    """
    each = count // parts
    found = {node: len(there) // each for node, there in by_node(devices).items()}
    return {node: n for node, n in found.items() if n} if sum(found.values()) >= parts else {}


def nodes_of(lease: Lease, devices: Mapping[str, Device]) -> Counter[str]:
    """Return how many of a lease's devices stand in each place, as far as they are known."""
    return Counter(devices[uuid].place for uuid in lease.devices if uuid in devices)


Nodes = Mapping[str, Sequence[Device]]
_Wish = tuple[str, str]  # class, what is needed besides


class Inventory:
    """The devices of one pool that nobody took yet.

    Args:
        devices: in the order in which they are taken within a node, the least versatile before.
        held: device -> the request that it is kept for.

    Attributes:
        versatile: of ``versatility``.
        warm: whether a pod stands ready on any of them.
    """

    def __init__(self, devices: Iterable[Device], held: Mapping[str, str]) -> None:
        there = list(devices)
        self.versatile = versatility(there)
        if self.versatile:
            there.sort(key=lambda device: self.versatile[device.uuid])
        self.warm = any(device.warm for device in there)
        self._left = {device.uuid: device for device in there}
        self._keeper = {uuid: held[uuid] for uuid in self._left if uuid in held}
        self._kept: dict[str, list[Device]] = {}
        for uuid, request_id in self._keeper.items():
            self._kept.setdefault(request_id, []).append(self._left[uuid])
        self._loose: dict[_Wish, dict[str, list[Device]]] = {}  # node -> devices
        self._count: dict[_Wish, Counter[str]] = {}  # node -> how many, kept ones as well

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, device: Device) -> bool:
        return device.uuid in self._left

    def line(self, request: Lease) -> Nodes:
        """Return what a request may take, by node, what is kept for it first."""
        wish = request.gpu_class, request.needs
        loose = self.loose(*wish)
        kept_for = self._kept.get(request.id, ())
        mine = [d for d in kept_for if suits(request.gpu_class, d, request.needs)]
        if not mine:
            return loose
        kept = by_node(mine)
        return {node: [*kept.get(node, ()), *loose.get(node, ())] for node in {**kept, **loose}}

    def loose(self, gpu_class: str, needs: str = "") -> Nodes:
        """Return what suits a class and meets needs and is kept for nobody, by node."""
        wish = gpu_class, needs
        if wish not in self._loose:
            self._loose[wish] = by_node(
                device
                for device in self._left.values()
                if device.uuid not in self._keeper and suits(gpu_class, device, needs)
            )
        return self._loose[wish]

    def whole(self, request: Lease, but: Set[str] = frozenset()) -> Nodes:
        """Return what suits a request by node, what is kept for others last, ``but`` for these."""
        gpu_class, needs = request.gpu_class, request.needs
        rest = [self._left[uuid] for uuid, keeper in self._keeper.items() if keeper not in but]
        kept = by_node(d for d in rest if suits(gpu_class, d, needs))
        return joined(self.loose(gpu_class, needs), kept)

    def kept_for(self, request: Lease) -> list[str]:
        """Return the devices that are kept for a request."""
        return [device.uuid for device in self._kept.get(request.id, ())]

    def has_room(self, request: Lease) -> bool:
        """Whether the devices that a request asks for are left on its nodes, for whomever."""
        wish = request.gpu_class, request.needs
        if wish not in self._count:
            there = self._left.values()
            self._count[wish] = Counter(d.place for d in there if suits(wish[0], d, request.needs))
        each = request.per_node
        return sum(left // each for left in self._count[wish].values()) >= request.nodes

    def take(self, devices: Iterable[Device]) -> None:
        """Let devices go; those that are not here are none of this one's."""
        for device in devices:
            if self._left.pop(device.uuid, None) is None:
                continue
            self._drop(device)
            for (gpu_class, needs), left in self._count.items():
                left[device.place] -= suits(gpu_class, device, needs)

    def keep(self, devices: Iterable[Device], request: Lease) -> None:
        """Keep devices for a request; those that are not here are left out."""
        for device in devices:
            if device.uuid in self._left:
                self._drop(device)
                self._keeper[device.uuid] = request.id
                self._kept.setdefault(request.id, []).append(device)

    def _drop(self, device: Device) -> None:
        """Strike a device from the lists that it may stand in."""
        holder = self._keeper.pop(device.uuid, None)
        if holder is not None:
            self._kept[holder] = [d for d in self._kept[holder] if d.uuid != device.uuid]
            return
        for nodes in self._loose.values():
            if device.place in nodes:
                left = [d for d in nodes[device.place] if d.uuid != device.uuid]
                nodes[device.place] = left
                if not left:
                    del nodes[device.place]


def joined(first: Nodes, second: Nodes) -> Nodes:
    """Return both inventories' lines, the first one's devices before the other's in each node."""
    if not first or not second:
        return first or second
    return {node: [*first.get(node, ()), *second.get(node, ())] for node in {**first, **second}}


_NEED = re.compile(r"([a-z]+)\s*(?:(>=|=>|=|>|<=?)\s*(\S.*))?")
_COMPUTE = re.compile(r"(\d{1,3})(?:\.(\d{1,3}))?")
#: What may be demanded, as it is said to who wrote something else.
NEEDS_FORM = "Write for example memory>=20GiB, cc>=8.0 or ecc; several are divided by commas."


@dataclass(frozen=True)
class Needs:
    """Demands on each device; ``memory`` in bytes, ``compute`` is the CUDA capability."""

    memory: int = 0
    compute: tuple[int, int] = (0, 0)
    ecc: bool = False

    def __str__(self) -> str:
        """Return it as it is stored and shown: always in the same order, "" for nothing."""
        found = [f"memory>={format_size(self.memory)}"] if self.memory else []
        found += ["cc>={}.{}".format(*self.compute)] if self.compute > (0, 0) else []
        return ", ".join([*found, *(["ecc"] if self.ecc else [])])

    def met_by(self, memory: int, compute: tuple[int, int] | None, ecc: bool | None) -> bool:
        """Whether a device with these attributes will do; ``None`` is not known."""
        return (
            memory >= self.memory
            and (self.compute == (0, 0) or (compute is not None and compute >= self.compute))
            and (not self.ecc or ecc is True)
        )


@lru_cache(maxsize=1024)
def parse_needs(text: str) -> Needs:
    """Return what a text demands; of two demands of one kind the greater.

    Raises:
        ValueError: with a sentence that may be shown.
    """
    memory, compute, ecc = 0, (0, 0), False
    for part in (each.strip() for each in text.split(",")):
        if not part:
            continue
        match = _NEED.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no demand on a GPU.")
        name, relation, value = match.groups()
        if name == "ecc" and relation is None:
            ecc = True
        elif name == "memory" and relation == ">=":
            memory = max(memory, parse_size(value))
        elif name == "cc" and relation == ">=":
            compute = max(compute, _compute(value))
        else:
            raise ValueError(f"{part!r} is no demand on a GPU.")
    return Needs(memory, compute, ecc)


def _compute(text: str) -> tuple[int, int]:
    match = _COMPUTE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no compute capability; write for example 8.0.")
    return int(match[1]), int(match[2] or 0)
