"""A site for this folder's tests: gpulease as shipped, a hub and a service, on the cluster."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testcluster.cluster import Cluster
    from testcluster.lease_world import LeaseWorld
    from testcluster.site.site import Site

POLICY = """
pools:
  cards: {evidence: process}
  claims: {evidence: cells}
classes:
  card:
    pool: cards
    pod: {kind: device_plugin}
  claim:
    pool: claims
    pod: {kind: dra}
time_outs:
  {idle: 8s, idle_under_pressure: 4s, quiet: 20s, warning: 3s, warm_up: 1s, drain_max: 30s}
"""


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Tell people something while a long test runs."""

    def words(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", end="", flush=True)

    return words


@pytest.fixture(scope="module")
def site(cluster: "Cluster") -> "Iterator[Site]":
    """A running site; its leases fall idle within seconds.  Its logs lie beside the cluster's.

    One at a time: two services of one instance would each take the other's leases for its own.
    """
    from testcluster.site.site import running_site

    directory = Path(tempfile.mkdtemp(prefix="site-", dir=cluster.layout.logs))
    with running_site(cluster, directory, POLICY) as running:
        yield running


@pytest.fixture
def lease_id(namespace: str) -> Callable[[str], str]:
    """Names that no other test has: a lease's processes are found by them."""
    return lambda name: f"{name}-{namespace}"


@pytest.fixture
async def world(
    cluster: "Cluster", namespace: str, monkeypatch: pytest.MonkeyPatch
) -> "AsyncIterator[LeaseWorld]":
    """A provider in a namespace of its own; what its lease pods run ends when it is asked to."""
    from gpulease.providers.kubernetes.manifests import manifest
    from testcluster.lease_world import OBEDIENT, LeaseWorld

    monkeypatch.setattr(manifest, "COMMAND", OBEDIENT)
    found = LeaseWorld(cluster, namespace)
    await found.open()
    yield found
    await found.close()
