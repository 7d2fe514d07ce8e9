"""What gpulease costs on Kubernetes: a real cluster, hub, service and agent, in one run.

Its parts are modules with ``async def measure(cluster, *, rounds, scale)``, each of which starts a
site of its own on the cluster and returns a report.
Needs what the tests on a cluster need: root, the packages and the built programs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from benchmarks import agent
from benchmarks.measure import machine, progress
from testcluster.machine import why_not
from testcluster.running import running_cluster

#: Rounds of ten seconds of the agent's life.
_AGENT_ROUNDS = 6


async def measure(*, rounds: int, scale: float, parts: Sequence[str]) -> dict[str, Any]:
    """Run the parts that are named; return their reports by name.

    Raises:
        SystemExit: no cluster can run on this machine.
    """
    found: dict[str, Any] = {}
    problem = why_not()
    if problem:
        raise SystemExit(f"no cluster can run here: {problem}")
    with running_cluster() as cluster:
        for part in parts:
            progress(f"kubernetes: {part}")
            if part == "agent":  # needs no cluster, and stands beside the other figures
                found[part] = await agent.measure(min(rounds, _AGENT_ROUNDS), scale)
            else:
                module = importlib.import_module(f"benchmarks.kubernetes.{part}")
                found[part] = await module.measure(cluster, rounds=rounds, scale=scale)
    return {"benchmark": "kubernetes", "parts": found, "machine": machine()}
