"""Which pretend devices the node shows: the file between the tests and the device plugin.

A resource has cards; with `replicas` above one each card is offered that often, under ids
`CARD::K` as NVIDIA's plugin names time-sliced replicas.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Resource:
    """An extended resource: its cards' ids and how many share each."""

    name: str
    cards: tuple[str, ...]
    replicas: int = 1

    def ids(self) -> dict[str, str]:
        """Return each device's id as the kubelet sees it -> its card."""
        if self.replicas == 1:
            return {card: card for card in self.cards}
        return {f"{card}::{k}": card for card in self.cards for k in range(self.replicas)}


@dataclass(frozen=True)
class Devices:
    """All resources, the cards that are out of order, and what `Allocate` adds to a container."""

    resources: tuple[Resource, ...]
    unhealthy: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    """Pairs of a path on the machine and the path in the container, read-only."""
    environment: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        unfinished.replace(path)

    @staticmethod
    def load(path: Path) -> "Devices":
        document = json.loads(path.read_text(encoding="utf-8"))
        return Devices(
            resources=tuple(
                Resource(each["name"], tuple(each["cards"]), each["replicas"])
                for each in document["resources"]
            ),
            unhealthy=tuple(document["unhealthy"]),
            mounts=tuple((host, inside) for host, inside in document["mounts"]),
            environment=document["environment"],
        )


def card(number: int) -> str:
    """Return the id of the n-th pretend card, in the form of NVIDIA's."""
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def default_devices() -> Devices:
    """Return four whole cards, one card shared by four, and a card cut into two MIG slices."""
    return Devices(
        resources=(
            Resource("nvidia.com/gpu", tuple(card(n) for n in range(4))),
            Resource("nvidia.com/gpu.shared", (card(4),), replicas=4),
            Resource(
                "nvidia.com/mig-3g.20gb",
                tuple(f"MIG-{n:08x}-0000-4000-8000-000000000000" for n in range(2)),
            ),
        )
    )


#: What GPU feature discovery would write on such a node.
NODE_LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "Pretend-GPU-40GB",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.count": "4",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/mig.capable": "true",
}
