"""Who holds which device by the kubelet's own books, read from its PodResources socket.

The node agent's own client reads its `List`; `invariants` judges it.
"""

import time
from collections.abc import Iterable
from contextlib import closing

from gpulease.gpus.agent.pod_resources import PodResources
from gpulease.gpus.agent.wire import ContainerDevice
from testcluster.layout import Layout


def held_devices(layout: Layout) -> dict[str, frozenset[str]] | None:
    """Return each device with the `namespace/name` of the pods it is given to, as of now.

    None while the kubelet does not answer.
    """
    # A new client for each look: what a client keeps from before is not what is so now.
    with closing(PodResources(layout.pod_resources_socket)) as kubelet:
        now = time.monotonic()
        kubelet.refresh(now)
        found = None if kubelet.problem else kubelet.holders(now, {})
    return None if found is None else books(found)


def books(found: Iterable[ContainerDevice]) -> dict[str, frozenset[str]]:
    """Return the pods of each device; one of a claim is named by its driver and pool, too."""
    pods: dict[str, set[str]] = {}
    for each in found:
        device = "/".join(part for part in (each.driver, each.pool, each.device) if part)
        pods.setdefault(device, set()).add(f"{each.namespace}/{each.pod}")
    return {device: frozenset(names) for device, names in pods.items()}
