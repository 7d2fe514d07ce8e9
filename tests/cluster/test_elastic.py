"""Nodes that join because lease pods wait for them, and go again; an autoscaler's part is the
test's own.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpulease.policy import lifecycle
from gpulease.policy.catalog import Elastic
from gpulease.policy.model import Lease, LeaseState, PolicyDocument, Pool, Requeue, Snapshot, Start
from gpulease.policy.planner import plan
from gpulease.policy.pods import PodAsk, Toleration
from testcluster.cluster import Cluster
from testcluster.kwok import LABEL, TAINT, add_nodes, remove_nodes
from testcluster.lease_looks import shown, until
from testcluster.lease_world import CARD, LeaseWorld
from tests.contract.provider import lease_on
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

LONG = 180.0
ON_KWOK = replace(
    CARD, pod=PodAsk(node_selector=tuple(LABEL.items()), tolerations=(Toleration(TAINT["key"]),))
)
POLICY = PolicyDocument(
    1, (Pool("cards", elastic=Elastic(max=2)),), (ON_KWOK,), "any", ON_KWOK.time_outs
)


class Service:
    """What the service does with plans, for leases of the test."""

    def __init__(self, world: LeaseWorld) -> None:
        self.world = world
        self.leases: dict[str, Lease] = {}

    def ask(self, name: str, user: str) -> None:
        lease = replace(lease_on(name=name), count=1, user=user, state=LeaseState.QUEUED, attempt=0)
        self.leases[name] = replace(lease, ticket=(lease.created, len(self.leases)))

    async def round(self) -> list[object]:
        """Make one plan from what the provider shows, and carry it out."""
        provider = self.world.provider
        devices = tuple(d for d in await provider.devices() if d.node.startswith("kwok-"))
        seen = {x.lease_id: x for x in await provider.observe() if x.lease_id in self.leases}
        now = datetime.now(UTC)
        view = Snapshot(
            now, POLICY, devices, tuple(self.leases.values()), {}, seen, grows=provider.grows
        )
        actions = plan(view)
        for action in actions:
            lease = self.leases[action.lease_id]
            after = lifecycle.apply(lease, action, now, ON_KWOK.time_outs)
            self.leases[lease.id] = after
            if isinstance(action, Start):
                await provider.start(after)
            elif isinstance(action, Requeue):
                await provider.stop(lease)
            elif after.state is LeaseState.STARTING:
                await provider.start(after)
        return list(actions)

    async def until(self, name: str, what: str, holds: Callable[[Lease], bool]) -> Lease:
        """Go on in rounds until something holds of a lease."""

        async def there() -> bool:
            await self.round()
            assert holds(self.leases[name]), self.leases[name]
            return True

        await wait_for_async(there, LONG, what, every=0.2)
        return self.leases[name]


async def test_a_node_is_waited_for_bound_when_it_joins_and_left_alone_by_who_waits_for_another(
    world: LeaseWorld, cluster: Cluster, lease_id: Callable[[str], str]
) -> None:
    first, second = lease_id("first"), lease_id("second")
    world.classes, world.bind_timeout = (ON_KWOK,), 0.1
    await world.restart()
    service = Service(world)
    try:
        world.server("ada")
        world.server("bob")
        service.ask(first, "ada")
        (start,) = await service.round()
        assert isinstance(start, Start)
        assert (start.reason, start.devices) == ("adding_node", ())

        async def waits() -> bool:
            seen = await shown(world, service.leases[first])
            return "nodes are available" in seen.detail

        await wait_for_async(waits, LONG, "the scheduler's word")
        # Long beyond `bind_timeout`: no failure, for nothing was promised to be there.
        await until(world, service.leases[first], LONG, stage="adding_node", failed="")
        await service.round()
        assert service.leases[first].reason == "adding_node"

        add_nodes(cluster, 1, gpus=1)
        bound = await service.until(first, "its node's device", lambda x: bool(x.devices))
        assert [each.partition("/")[0] for each in bound.devices] == ["kwok-000"]
        await world.running(bound)

        service.ask(second, "bob")
        await service.until(second, "a node to be asked for", lambda x: x.reason == "adding_node")
        await wait_for_async(lambda: world.lease_pod(service.leases[second]), LONG, "its pod")
        add_nodes(cluster, 2, gpus=1)
        other = await service.until(second, "the new node's device", lambda x: bool(x.devices))
        assert [each.partition("/")[0] for each in other.devices] == ["kwok-001"]
    finally:
        remove_nodes(cluster)
    gone = await wait_for_async(
        lambda: _none_of(world), LONG, "the nodes' devices to be gone with them"
    )
    assert gone


async def test_who_waits_for_a_node_gets_what_came_free_and_only_by_the_queue(
    world: LeaseWorld, cluster: Cluster, lease_id: Callable[[str], str]
) -> None:
    """The pod itself never takes it: it is for new nodes alone."""
    name = lease_id("late")
    world.classes = (ON_KWOK,)
    await world.restart()
    service = Service(world)
    holder = lease_id("holder")
    try:
        add_nodes(cluster, 1, gpus=1)
        world.server("ada")
        world.server("bob")
        service.ask(holder, "ada")
        held = await service.until(holder, "the one device", lambda x: bool(x.devices))
        await world.running(held)
        service.ask(name, "bob")
        await service.until(name, "a node to be asked for", lambda x: x.reason == "adding_node")
        made = await wait_for_async(lambda: world.lease_pod(service.leases[name]), LONG, "a pod")
        terms = made["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
        off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["kwok-000"]}
        assert all(off in each["matchExpressions"] for each in terms)

        del service.leases[holder]
        await world.provider.stop(replace(held, state=LeaseState.ENDED))
        path = f"{world.pods_path}/{made['metadata']['name']}"
        world.api.delete(
            f"{world.pods_path}/{(await world.running(held))['metadata']['name']}",
            {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0},
        )
        got = await service.until(name, "the device that came free", lambda x: bool(x.devices))
        assert got.attempt == 2
        assert world.api.find(path) is None or "deletionTimestamp" in str(world.api.find(path))
        landed = await world.running(got)
        assert landed["spec"]["nodeName"] == "kwok-000"
    finally:
        remove_nodes(cluster)


async def _none_of(world: LeaseWorld) -> bool:
    return not any(each.node.startswith("kwok-") for each in await world.provider.devices())
