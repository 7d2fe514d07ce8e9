"""A namespace's quota bounds what is granted: who has no room waits, and nothing is tried."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.model import EndReason, LeaseState
from gpulease.providers.kubernetes.manifests import manifest
from gpulease.store import Change
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.lease_service import Service, service
from testcluster.lease_world import OBEDIENT, LeaseWorld
from tests.helpers import wait_for, wait_for_async

pytestmark = pytest.mark.cluster
GPU = "requests.nvidia.com/gpu"


@pytest.fixture
async def world(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> LeaseWorld:
    """Three servers in a namespace with a quota of one GPU."""
    monkeypatch.setattr(manifest, "COMMAND", OBEDIENT)
    found = LeaseWorld(cluster, namespace)
    found.account(manifest.SERVICE_ACCOUNT)
    for user in ("ada", "bob", "cleo"):
        found.server(user)
    metadata = {"name": "gpus", "namespace": namespace}
    spec = {"hard": {GPU: "1"}}
    found.api.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
    )
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/gpus"
    wait_for(lambda: (found.api.get(path).get("status") or {}).get("hard"), 120, "it is counted")
    return found


def refusals(world: LeaseWorld, before: int) -> list[Object]:
    return [
        each
        for each in world.cluster.audited()[before:]
        if (each.get("objectRef") or {}).get("namespace") == world.namespace
        and each["verb"] == "create"
        and each["responseStatus"].get("code") == 403
    ]


async def give_back(running: Service, name: str) -> None:
    lease = running.lease(name)
    async with running.ledger.lock:
        after = lifecycle.end(lease, EndReason.RETURNED, datetime.now(UTC))
        await running.loop.change([Change(lease, after, lease.user, "returned")])


async def test_who_the_quota_has_no_room_for_waits_with_its_numbers_and_follows(
    world: LeaseWorld, tmp_path: Path
) -> None:
    names = [f"{user}-{world.namespace}" for user in ("ada", "bob", "cleo")]
    before = len(world.cluster.audited())
    async with service(world, tmp_path) as running:
        await wait_for_async(lambda: running.provider._cluster.quotas, 120, "the quota is known")
        for name in names:
            await running.ask(name, user=name.partition("-")[0])
        await running.connect(names[0])

        def waits() -> bool:
            said = [running.lease(name) for name in names[1:]]
            assert [each.reason for each in said] == ["quota_exceeded"] * 2
            return all(each.state is LeaseState.QUEUED for each in said)

        await wait_for_async(waits, 120, "the others wait for the quota")
        second = running.lease(names[1])
        assert second.detail.startswith(f"Quota gpus of namespace {world.namespace}: ")
        assert f"of 1 {GPU} used" in second.detail
        assert second.failures == 0
        assert second.not_before is None

        await give_back(running, names[0])
        await running.connect(names[1])
        assert running.lease(names[1]).detail != second.detail
        assert running.lease(names[2]).state is LeaseState.QUEUED

        # More room is used as soon as it is given.
        path = f"/api/v1/namespaces/{world.namespace}/resourcequotas/gpus"
        world.api.patch(path, {"spec": {"hard": {GPU: "2"}}})
        await running.connect(names[2])
    assert refusals(world, before) == [], "nothing was tried that the quota would refuse"
