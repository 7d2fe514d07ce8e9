"""A site to measure on: the shipped manifests, a real hub, the service and the node agent."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import stack
from benchmarks.kubernetes.pods import PATIENCE, Pods
from gpulease.demo.kernel_socket import CellRun
from testcluster.cluster import Cluster
from testcluster.site.people import Student
from testcluster.site.site import Site, running_site

#: Nothing leaves by itself while it is measured.
POLICY = """
pools:
  cards: {evidence: process}
classes:
  card: {pool: cards, pod: {kind: device_plugin}}
time_outs: {idle: 1h, idle_under_pressure: 1h, quiet: 1h}
"""


@contextmanager
def site_on(cluster: Cluster, policy: str = POLICY) -> Iterator[Site]:
    """Start a site on the cluster and end it afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=cluster.layout.logs) as made,
        running_site(cluster, Path(made), policy) as site,
    ):
        yield site


async def run(student: Student, source: str) -> CellRun:
    """Run a cell; a failure ends the benchmark."""
    return await stack.run(student.kernel, source)


def lease_pod(site: Site) -> str:
    """Return the name of the one lease pod there is."""
    (pod,) = site.lease_pods()
    return str(pod["metadata"]["name"])


async def give_back(student: Student, site: Site, pods: Pods) -> None:
    """Return the lease; wait until its pod is gone and the class has its device again."""
    name = lease_pod(site)
    await run(student, "%gpu return")
    await pods.until(name, "gone")
    await until_free(student)


async def until_free(student: Student) -> None:
    """Wait until the service says that every device can be granted."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = await student.browser.service_api("GET", "classes")
        if all(each["free"] == each["total"] for each in found["items"]):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"devices were not free in {PATIENCE:g} s")
