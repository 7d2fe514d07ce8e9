"""The contract of every provider, kept by pods of a real cluster."""

from collections.abc import AsyncIterator

import pytest

from gpulease.policy.model import Lease
from gpulease.providers.kubernetes.manifests import manifest
from testcluster.cluster import Cluster
from testcluster.lease_world import SLOW, LeaseWorld
from tests.contract.provider import ProviderContract, World

pytestmark = pytest.mark.cluster


class ClusterWorld(World):
    """Runs each lease of the contract in a pod."""

    def __init__(self, leases: LeaseWorld) -> None:
        self.leases = leases
        self.provider = leases.provider

    async def run(self, lease: Lease) -> None:
        await self.leases.run(lease)

    async def die(self, lease: Lease) -> None:
        await self.leases.die(lease)

    async def disconnect(self, lease: Lease) -> None:
        await self.leases.disconnect(lease)

    async def token(self, lease: Lease) -> str:
        return await self.leases.token(lease)

    async def restart(self) -> None:
        await self.leases.restart()
        self.provider = self.leases.provider


class TestKubernetesProvider(ProviderContract):
    """The shared contract, over pods."""

    @pytest.fixture
    async def world(
        self, cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[ClusterWorld]:
        # Its processes outlive the request to end, so that what lives on can be looked at.
        monkeypatch.setattr(manifest, "COMMAND", SLOW)
        leases = LeaseWorld(cluster, namespace)
        leases.server("stu")
        await leases.open()
        yield ClusterWorld(leases)
        await leases.close()
