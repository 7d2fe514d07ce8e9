"""``POST api/agents/batches``: a GPU node's agent to the service."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12


class AgentHolder(TypedDict):
    """One device in the hands of one container, as the node's kubelet says."""

    namespace: str
    pod: str
    container: str
    resource: str  # the extended resource, such as ``nvidia.com/gpu``; "" for a claim's device
    device: str  # GPU-..., GPU-...::3 (a replica), MIG-...; of a claim its name in the slice
    driver: NotRequired[str]  # of a claim's device: who publishes the slice
    pool: NotRequired[str]  # of a claim's device: the slice's pool


class AgentIncident(TypedDict):
    """A fault that a device reported; ``until`` is ``None`` while it lasts."""

    kind: str  # a key of ``policy.evidence.quarantine.KINDS``
    at: str
    until: str | None
    xid: NotRequired[int]


class AgentDevice(TypedDict):
    """One device of the node (a GPU or a MIG device) and what went wrong on it for 24 hours."""

    uuid: str
    parent: str  # the GPU of a MIG device, else ""
    index: int
    name: str
    memory: int  # bytes
    level: Literal["process", "device", "cells"]  # how finely its use can be attributed
    offered: bool  # the kubelet gives it out; False: its device plugin withdrew it
    incidents: list[AgentIncident]


class AgentSecond(TypedDict):
    """One device in one second.  At level ``process`` a pod that is not named used nothing."""

    at: str
    device: str  # AgentDevice.uuid
    use: float | None  # 0..1, the peak since the second before; None is a gap
    gap: NotRequired[str]  # why there is no word
    memory: NotRequired[int]  # bytes in use
    power: NotRequired[float]  # watts
    pods: NotRequired[dict[str, float]]  # pod UID -> 0..1, use by its processes
    others: NotRequired[float]  # 0..1, use by processes of the node that are in no pod
    unplaced: NotRequired[float]  # 0..1, use by processes that could not be placed


class AgentBatch(TypedDict):
    """Some seconds of one node.  ``holders`` is ``None`` while the kubelet does not answer."""

    sequence: int  # grows by one, over restarts too
    at: str
    devices: list[AgentDevice]
    holders: list[AgentHolder] | None
    seconds: list[AgentSecond]
    problem: str  # why there is no device, "" when there are some


class AgentPost(TypedDict):
    """Body of ``POST api/agents/batches``; which node it is from is told by the token alone.

    Answered by ``{"taken": n, "repeated": n, "now": ...}``: what was posted need not come again.
    """

    protocol: str
    run: str  # whose sequences these are; a ledger that was lost begins a new one
    sent: str  # the agent's clock
    batches: list[AgentBatch]
