"""Where node agents post: proved by their token, believed for their own node, taken once.

A post is checked here, a repeat and a clock that is off are recognised, and it is known when each
node was heard last.  The provider understands what a batch says.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gpulease.errors import GPULeaseError
from gpulease.policy.model import PolicyDocument
from gpulease.policy.pods import resource_of
from gpulease.protocol.agents import AgentBatch, AgentPost
from gpulease.providers.base import AgentReports
from gpulease.service.schemas.shapes import BatchesTaken, ResourceNames

log = logging.getLogger(__name__)

#: Seconds for which a proved token is not asked about again.
PROOF_SECONDS = 60.0
#: An agent's clock may be off by this much (seconds) before an admin hears of it.
SKEW_MAX = 5.0
#: Seconds after which the silence of a GPU node's agent is told to an admin.
SILENT_MAX = 60.0
#: Nodes that one sentence names.
_NAMED = 5
#: Below this (seconds) a difference of clocks is the way of the message and stays as it is.
_SKEW_LEAST = 1.0
#: Posts from which the difference of clocks is taken.
_DELAYS = 12
#: Sequences remembered for each node: a day of batches, and some.
_REMEMBERED = 20_000


@dataclass
class _Node:
    """What was heard of one node."""

    run: str = ""
    floor: int = 0  # this sequence and all below were taken, or are too old to tell
    above: set[int] = field(default_factory=set)
    heard: datetime | None = None
    delays: deque[float] = field(default_factory=lambda: deque(maxlen=_DELAYS))

    @property
    def skew(self) -> float:
        """Seconds by which the agent's clock is behind ours, for certain.

        A post that was slow on its way looks like a clock that is behind, so the quickest counts.
        """
        return min(self.delays, default=0.0)

    def take(self, run: str, sequence: int) -> bool:
        """Note a batch; false when it was taken before."""
        if run != self.run:
            self.run, self.floor, self.above = run, 0, set()
        if sequence <= self.floor or sequence in self.above:
            return False
        self.above.add(sequence)
        if len(self.above) > _REMEMBERED:
            self.floor = sorted(self.above)[len(self.above) // 2]
            self.above = {each for each in self.above if each > self.floor}
        return True


class Agents:
    """What the service knows of the node agents.

    Args:
        reports: proves tokens and takes the batches; ``None`` proves nobody.
        clock: the service's own time.
    """

    def __init__(
        self, reports: AgentReports | None, clock: Callable[[], datetime] | None = None
    ) -> None:
        self._reports = reports
        self._clock = clock or (lambda: datetime.now(UTC))
        self._nodes: dict[str, _Node] = {}
        self._expected: dict[str, datetime] = {}  # GPU nodes, and since when they are known
        self._proofs: dict[bytes, tuple[str, datetime]] = {}

    async def node_of(self, token: str) -> str:
        """Return the node that a token is bound to.

        Raises:
            GPULeaseError: ``not_an_agent`` (401, 403), ``cluster_unreachable`` (502).
        """
        now = self._clock()
        key = hashlib.sha256(token.encode()).digest()  # the token itself is kept nowhere
        self._proofs = {k: proof for k, proof in self._proofs.items() if proof[1] > now}
        if key in self._proofs:
            return self._proofs[key][0]
        try:
            node = await self._reports.agent_node(token) if token and self._reports else None
        except OSError as error:
            raise GPULeaseError(
                "cluster_unreachable",
                "The cluster does not answer, so the agent cannot be recognised.",
                next_step="Try again in a moment; nothing that was seen is lost meanwhile.",
                status=502,
            ) from error
        if node is None:
            raise GPULeaseError(
                "not_an_agent",
                "Only a node agent's own token can post here.",
                next_step="Run the agent under its service account, with a token for the audience"
                " gpulease that is bound to its pod.",
                status=403 if token else 401,
            )
        self._proofs[key] = (node, now + timedelta(seconds=PROOF_SECONDS))
        return node

    def take(self, node: str, post: AgentPost) -> BatchesTaken:
        """Hand each new batch to the provider, with its times by our clock; return the answer."""
        assert self._reports is not None, "no node was proved"
        now = self._clock()
        known = self._nodes.setdefault(node, _Node())
        behind = (now - datetime.fromisoformat(post["sent"])).total_seconds()
        before = known.skew
        known.delays.append(behind)
        known.heard = now
        if abs(known.skew) > SKEW_MAX >= abs(before):
            log.warning("the clock of node %s differs from ours by %.1f s", node, known.skew)
        taken = 0
        for batch in sorted(post["batches"], key=lambda each: each["sequence"]):
            if known.take(post["run"], batch["sequence"]):
                self._reports.agent_batch(node, _by_our_clock(batch, known.skew))
                taken += 1
        repeated = len(post["batches"]) - taken
        leaving = self._reports.node_leaves(node)
        return {"taken": taken, "repeated": repeated, "now": now.isoformat(), "leaving": leaving}

    def heard(self) -> Mapping[str, datetime]:
        """Return when each node's agent posted last."""
        return {name: node.heard for name, node in self._nodes.items() if node.heard is not None}

    def problems(self, nodes: Collection[str] = ()) -> list[str]:
        """Return what an admin should know of the agents, as sentences.

        Args:
            nodes: the nodes that have GPUs: an agent belongs on each.
        """
        now = self._clock()
        self._expected = {name: self._expected.get(name, now) for name in nodes}
        silent, heard = timedelta(seconds=SILENT_MAX), self.heard()
        missing = [
            name
            for name, since in sorted(self._expected.items())
            if now - (heard.get(name) or since) > silent
        ]
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        found = []
        if missing:
            found.append(
                f"No agent has been heard for {SILENT_MAX:.0f} s on GPU nodes:"
                f" {', '.join(missing[:_NAMED])}{more}."
            )
        return found + [
            f"The clock of node {name} differs from the service's by {abs(node.skew):.0f} s."
            for name, node in sorted(self._nodes.items())
            if abs(node.skew) > SKEW_MAX
        ]


def resources_of(policy: PolicyDocument) -> dict[str, ResourceNames]:
    """Return the pool and class of each resource, for the agents' metrics.

    A resource that several pools or classes ask for has no name of its own: "".
    """
    found: dict[str, ResourceNames] = {}
    for each in policy.classes:
        if each.pod is None or not resource_of(each.pod):
            continue
        known = found.setdefault(resource_of(each.pod), {"pool": each.pool, "gpu_class": each.name})
        known["pool"] = each.pool if known["pool"] == each.pool else ""
        known["gpu_class"] = each.name if known["gpu_class"] == each.name else ""
    return found


def _by_our_clock(batch: AgentBatch, behind: float) -> AgentBatch:
    """Return the batch as the provider takes it, moved to our clock if the agent's is off."""
    if abs(behind) < _SKEW_LEAST:
        return batch
    found = deepcopy(batch)
    shift = timedelta(seconds=behind)
    found["at"] = _moved(found["at"], shift)
    for second in found["seconds"]:
        second["at"] = _moved(second["at"], shift)
    for device in found["devices"]:
        for incident in device["incidents"]:
            incident["at"] = _moved(incident["at"], shift)
            incident["until"] = incident["until"] and _moved(incident["until"], shift)
    return found


def _moved(at: str, shift: timedelta) -> str:
    return (datetime.fromisoformat(at) + shift).isoformat()
