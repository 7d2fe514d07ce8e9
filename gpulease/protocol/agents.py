"""``POST api/agents/batches``: a GPU node's agent to the service, each member with its bounds.

Members beyond these are left for newer agents.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from annotated_types import Interval, Len, MaxLen
from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.protocol.bounds import Instant, Share

#: Batches of one post; an agent that was alone for long sends several posts.
BATCHES_MAX = 60
_SECONDS_MAX = 8192

Identifier = Annotated[str, Len(1, 128)]
Bytes = Annotated[int, Interval(ge=0, le=2**53)]
Name = Annotated[str, MaxLen(253)]
Word = Annotated[str, MaxLen(64)]


class AgentHolder(TypedDict):
    """One device in the hands of one container, as the node's kubelet says."""

    namespace: Annotated[str, Len(1, 63)]
    pod: Annotated[str, Len(1, 253)]
    container: Name
    resource: Name  # the extended resource, such as ``nvidia.com/gpu``; "" for a claim's device
    device: Identifier  # GPU-..., GPU-...::3 (a replica), MIG-...; of a claim its name in the slice
    driver: NotRequired[Name]  # of a claim's device: who publishes the slice
    pool: NotRequired[Name]  # of a claim's device: the slice's pool


class AgentIncident(TypedDict):
    """A fault that a device reported; ``until`` is ``None`` while it lasts."""

    kind: Word  # a key of ``policy.evidence.quarantine.KINDS``
    at: Instant
    until: Instant | None
    xid: NotRequired[Annotated[int, Interval(ge=0, le=2**32)] | None]


class AgentDevice(TypedDict):
    """One device of the node (a GPU or a MIG device) and what went wrong on it for 24 hours."""

    uuid: Identifier
    parent: Annotated[str, MaxLen(128)]  # the GPU of a MIG device, else ""
    index: Annotated[int, Interval(ge=0, le=4096)]
    name: Annotated[str, MaxLen(128)]
    memory: Bytes
    level: Literal["process", "device", "cells"]  # how finely its use can be attributed
    offered: bool  # the kubelet gives it out; False: its device plugin withdrew it
    incidents: Annotated[list[AgentIncident], MaxLen(64)]


class AgentSecond(TypedDict):
    """One device in one second.  At level ``process`` a pod that is not named used nothing."""

    at: Instant
    device: Identifier  # AgentDevice.uuid
    use: Share | None  # 0..1, the peak since the second before; None is a gap
    gap: NotRequired[Word]  # why there is no word
    memory: NotRequired[Bytes | None]  # in use
    memories: NotRequired[
        Annotated[dict[Identifier, Bytes], MaxLen(256)]
    ]  # by pod UID, in use by its processes
    power: NotRequired[Annotated[float, Interval(ge=0, le=1e5)] | None]  # watts
    pods: NotRequired[
        Annotated[dict[Identifier, Share], MaxLen(256)]
    ]  # by pod UID, use by its processes
    others: NotRequired[Share]  # 0..1, use by processes of the node that are in no pod
    unplaced: NotRequired[Share]  # 0..1, use by processes that could not be placed


class AgentBatch(TypedDict):
    """Some seconds of one node.  ``holders`` is ``None`` while the kubelet does not answer."""

    sequence: Annotated[int, Interval(ge=1, le=2**53)]  # grows by one, over restarts too
    at: Instant
    devices: Annotated[list[AgentDevice], MaxLen(512)]
    holders: Annotated[list[AgentHolder], MaxLen(4096)] | None
    seconds: Annotated[list[AgentSecond], MaxLen(_SECONDS_MAX)]
    problem: Annotated[str, MaxLen(500)]  # why there is no device, "" when there are some


class AgentPost(TypedDict):
    """Body of ``POST api/agents/batches``; which node it is from is told by the token alone.

    Answered by ``{"taken": n, "repeated": n, "now": ...}``: what was posted need not come again.
    """

    protocol: Annotated[str, MaxLen(16)]
    run: Annotated[str, Len(8, 64)]  # whose sequences these are; a new ledger begins anew
    sent: Instant  # the agent's clock
    batches: Annotated[list[AgentBatch], Len(1, BATCHES_MAX)]
