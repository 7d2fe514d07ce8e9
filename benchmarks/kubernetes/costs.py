"""What a stretch of a round cost: requests by the audit log, processor time by program."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import psutil

from testcluster.api import Object
from testcluster.cluster import Cluster

_WRITING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def pods_created(events: Iterable[Object], names: Iterable[str] | None = None) -> list[float]:
    """Return when each pod was asked for, in order; ``names`` leaves others out.

    Dry runs make none: the service tries its rights so when it starts, seconds before anybody asks.
    """
    wanted = None if names is None else set(names)
    return sorted(
        datetime.fromisoformat(each["requestReceivedTimestamp"]).timestamp()
        for each in events
        if (each["verb"], each["objectRef"].get("resource")) == ("create", "pods")
        and not each["objectRef"].get("subresource")
        and "dryRun=" not in each["requestURI"]
        and (wanted is None or each["objectRef"].get("name") in wanted)
    )


def rate(at: Sequence[float]) -> float:
    """Return how many a second there were between the first and the last; 0 for fewer than two."""
    return round((len(at) - 1) / (at[-1] - at[0]), 1) if len(at) > 1 else 0.0


def requests(events: Iterable[Object], number: int) -> dict[str, Any]:
    """Return how often each request was made; writes also for each of so many leases."""
    verbs = Counter((each["verb"], each["objectRef"]["resource"]) for each in events)
    writes = {f"{v} {what}": n for (v, what), n in verbs.items() if v in _WRITING}
    reads = {f"{v} {what}": n for (v, what), n in verbs.items() if v not in _WRITING}
    return {
        "writes_per_lease": round(sum(writes.values()) / number, 2),
        "writes": writes,
        "reads": reads,
    }


class Processors:
    """Processor seconds of the cluster's programs and of others, from now on.

    Args:
        others: process identifiers by name; the process that measures is ``stand-in``.
    """

    def __init__(self, cluster: Cluster, others: Mapping[str, int]) -> None:
        pids = {name: cluster.processes.pid(name) for name in cluster.processes.names()}
        self._processes = {
            name: psutil.Process(pid)
            for name, pid in {**pids, **others, "stand-in": os.getpid()}.items()
            if pid is not None
        }
        self._began, self._before = time.monotonic(), self._used()
        self._busy = _busy()

    def used(self) -> dict[str, Any]:
        """Return the seconds of each, of everything else on the machine, and how long it was."""
        after = self._used()
        mine = {name: round(after[name] - self._before[name], 1) for name in after}
        elapsed = time.monotonic() - self._began
        rest = _busy() - self._busy - sum(mine.values())
        return {
            "elapsed_seconds": round(elapsed, 1),
            "processor_seconds": dict(sorted(mine.items(), key=lambda each: -each[1])),
            "processor_seconds_of_others": round(max(0.0, rest), 1),
            "processor_seconds_there_were": round(elapsed * (psutil.cpu_count() or 1), 1),
        }

    def _used(self) -> dict[str, float]:
        found = {}
        for name, process in self._processes.items():
            times = process.cpu_times()
            found[name] = times.user + times.system
        return found


def _busy() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
