"""What gpulease costs on Kubernetes: a real cluster, hub, service and agent, in one run.

Its parts are modules with ``async def measure(cluster, *, rounds, scale)``, each of which starts a
site of its own on the cluster and returns a report.  Owns the cluster and the order of the parts.
Needs what the tests on a cluster need: root, the packages and the built programs.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import agent
from benchmarks.measure import machine, progress
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import VARIABLE
from tests.cluster.machine import why_not

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


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Start a cluster, or take the one that GPULEASE_CLUSTER names; this process moves inside."""
    named = os.environ.get(VARIABLE, "own")
    if named != "own":
        running = Cluster.at(Path(named))
        running.enter()
        yield running
        return
    directory = Path(tempfile.mkdtemp(prefix="gplk-"))
    started = Cluster.up(directory)
    try:
        started.enter()
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory)
