"""Which devices can serve a request together.

Owns four rules: a device serves the classes that it can serve, the devices of one request stand in
one place (of one that asks for several nodes, each node's equal part does), of those that would
do the least versatile are taken, and no whole card is opened for a part while another one has room
for it.  A place is a node, or the card that devices are parts of.  Refuses to know what is free,
and for whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from gpulease.policy.model import Device, Lease
from gpulease.policy.needs import parse


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
    return not needs or parse(needs).met_by(device.memory, device.compute, device.ecc)


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
