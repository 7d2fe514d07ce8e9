"""Whose token proves which lease: the pod of this very attempt, also one that is new to us."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpulease.providers.kubernetes.manifests import manifest
from testcluster.cluster import Cluster
from testcluster.lease_world import SLOW, LeaseWorld
from tests.contract.provider import lease_on

pytestmark = pytest.mark.cluster


@pytest.fixture
async def world(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LeaseWorld]:
    # A pod that was given up goes on for a while: both attempts are there at once.
    monkeypatch.setattr(manifest, "COMMAND", SLOW)
    found = LeaseWorld(cluster, namespace)
    found.server("stu")
    await found.open()
    yield found
    await found.close()


async def test_each_attempt_has_its_own_token_though_both_live(
    world: LeaseWorld, namespace: str
) -> None:
    first = lease_on((await world.provider.devices())[0], name=f"both-{namespace}")
    second = replace(first, attempt=2)
    for attempt in (first, second):
        await world.provider.start(attempt)
        await world.running(attempt)
    tokens = {each.attempt: await world.token(each) for each in (first, second)}
    for lease in (first, second):
        for number, token in tokens.items():
            assert (await world.provider.rank_of(lease, token) == 0) == (number == lease.attempt)
    for each in (first, second):
        await world.die(each)


async def test_a_pod_that_our_copy_of_the_cluster_does_not_show_yet_proves_itself(
    world: LeaseWorld, namespace: str
) -> None:
    lease = lease_on((await world.provider.devices())[0], name=f"new-{namespace}")
    await world.provider.start(lease)
    token = await world.token(lease)
    behind = world.fresh()  # it has not looked at the cluster at all
    try:
        assert await behind.rank_of(lease, token) == 0
        assert await behind.rank_of(replace(lease, attempt=2), token) is None
        assert await behind.rank_of(replace(lease, id=f"other-{namespace}"), token) is None
    finally:
        await behind.close()
        await world.die(lease)
