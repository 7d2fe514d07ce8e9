"""Whose use the use of a device is.

Owns the rule that the use of a pod's own processes always counts, and that use which cannot be told
apart protects nobody: such a second is of level ``cells``, where only a running cell keeps a lease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpulease.policy import idleness
from gpulease.policy.model import EvidenceLevel
from gpulease.protocol.agents import AgentSecond


def own_use(
    second: AgentSecond, uid: str, level: EvidenceLevel, beside: Collection[str] | None
) -> tuple[float | None, EvidenceLevel]:
    """Return a pod's own use in one second, and how finely it is known.

    Use by a pod that holds nothing of the device, or by the node itself, may be on behalf of a
    holder: an MPS server runs the work of all its clients.  So it is nobody's for sure.

    Args:
        second: of a device that the pod holds.
        uid: the pod.
        level: how finely the agent could tell the device's use apart.
        beside: the other pods that hold a share of it, as far as they are leases; ``None``: the
            pod holds it alone.
    """
    use = second["use"]
    if use is None or level is EvidenceLevel.CELLS:
        return use, level
    pods: Mapping[str, float] = second.get("pods", {})
    own, unplaced = pods.get(uid, 0.0), second.get("unplaced", 0.0)
    others = {pod: share for pod, share in pods.items() if pod != uid}
    known = max((share for pod, share in others.items() if pod in (beside or ())), default=0.0)
    alien = max(
        [second.get("others", 0.0)]
        + [share for pod, share in others.items() if pod not in (beside or ())]
    )
    if own > idleness.USE:
        return (own if beside is not None or alien > idleness.USE else use), EvidenceLevel.PROCESS
    if use <= idleness.USE:
        return own if beside is not None else use, level
    if beside is None:
        # What ended before it could be placed was this pod's: nobody else has the device.
        doubtful = alien > idleness.USE >= unplaced
        return use, EvidenceLevel.CELLS if doubtful else level
    told_apart = level is EvidenceLevel.PROCESS and max(unplaced, alien) <= idleness.USE
    return (own, level) if told_apart and max(known, own) > 0 else (use, EvidenceLevel.CELLS)
