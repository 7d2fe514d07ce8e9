"""A site for this folder's tests: gpulease as shipped, a hub and a service, on the cluster."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster
    from tests.cluster.site.site import Site

POLICY = """
pools:
  cards: {evidence: cells}
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


@pytest.fixture(scope="session")
def site(cluster: "Cluster", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Site]":
    """A running site; its leases fall idle within seconds."""
    from tests.cluster.site.site import running_site

    with running_site(cluster, tmp_path_factory.mktemp("site"), POLICY, homes_number=8) as running:
        yield running
