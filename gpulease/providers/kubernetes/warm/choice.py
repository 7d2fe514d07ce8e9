"""Which of the pods that stand ready go, and how many more are made.  Pure.

Owns the order in which they are let go.  How many there should be is policy's word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gpulease.policy.capacity import ReadyPods, grantable
from gpulease.policy.model import Device

#: Node and resource: where slots are alike.
AlikeSlots = tuple[str, str]


@dataclass(frozen=True)
class Ready:
    """A pod that stands ready or will: ``node`` is "" until it has its place."""

    uid: str
    gpu_class: str
    resource: str
    node: str
    ready: bool
    created: str

    @property
    def worth(self) -> tuple[bool, bool, str, str]:
        """What is kept first: what is ready, then what has its place, then the newest."""
        return self.ready, bool(self.node), self.created, self.uid


def surplus(
    pods: Iterable[Ready],
    standing: ReadyPods,
    devices: Iterable[Device],
    refused: Collection[str] = (),
) -> set[str]:
    """Return the pods that go: those in somebody's way, and those that are too many.

    Args:
        pods: all of them.
        standing: what should stand ready, and the devices that are about to be somebody's.
        devices: as they were shown last.
        refused: leases that no pod which stands ready can serve, though one of their class does.
    """
    alive = sorted(pods, key=lambda pod: pod.worth, reverse=True)
    if not alive:  # devices are many, and most sites have no such pods
        return set()
    coming = [
        (place_of(uuid), name)
        for uuid, (lease, name) in standing.granted.items()
        if lease not in refused
    ]
    gone = _in_the_way(alive, Counter(coming), _free(devices, standing))
    allowed = Counter(standing.pods) + Counter(name for _, name in coming)
    for pod in alive:
        if pod.uid in gone:
            continue
        if allowed[pod.gpu_class] > 0:
            allowed[pod.gpu_class] -= 1
        else:
            gone.add(pod.uid)
    return gone


def place_of(uuid: str) -> AlikeSlots:
    """Return node and resource of a slot."""
    node, _, rest = uuid.partition("/")
    return node, rest.rpartition("/")[0]


def _free(devices: Iterable[Device], standing: ReadyPods) -> Counter[AlikeSlots]:
    return Counter(
        place_of(each.uuid)
        for each in devices
        if grantable(each) and each.occupied_by is None and each.uuid not in standing.granted
    )


def _in_the_way(
    alive: Sequence[Ready], coming: Counter[tuple[AlikeSlots, str]], free: Counter[AlikeSlots]
) -> set[str]:
    """Return the pods on a device that somebody was granted whose pod they cannot become."""
    found = set()
    for pod in alive:
        place = pod.node, pod.resource
        if not pod.node:
            continue
        if coming[place, pod.gpu_class]:
            coming[place, pod.gpu_class] -= 1
        elif free[place]:
            free[place] -= 1
        else:
            found.add(pod.uid)
    return found
