"""Several hubs on one cluster: a lease runs beside its own person's server, not a namesake's."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest

from gpulease.policy.model import Lease
from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.manifests import manifest
from gpulease.providers.kubernetes.manifests.manifest import Settings
from gpulease.providers.kubernetes.provider import KubernetesProvider
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.lease_looks import some_free, until
from testcluster.lease_world import OBEDIENT, LeaseWorld
from tests.contract.provider import ended, lease_on
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster


class TwoHubs(LeaseWorld):
    """A provider that looks after the servers of a further hub, too."""

    lab = ""  # the namespace of the further hub's servers

    def fresh(self, **changed: object) -> KubernetesProvider:
        made = super().fresh(**changed)
        if not self.lab:
            return made
        settings: Settings = replace(
            made._settings, namespaces=(self.namespace, self.lab), hubs={"lab2": (self.lab,)}
        )
        client = OfficialClient(str(self.cluster.layout.kubeconfig))
        return KubernetesProvider(
            client, self.links, settings, classes=lambda: self.classes, wake=self._wake
        )


@pytest.fixture
def spaces(cluster: Cluster, namespace: str) -> Iterator[tuple[str, str]]:
    lab = f"{namespace}-lab"
    cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": lab}})
    yield namespace, lab
    cluster.api.delete(f"/api/v1/namespaces/{lab}")


@pytest.fixture
async def hubs(
    cluster: Cluster, spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[LeaseWorld, LeaseWorld]]:
    """The first hub's servers with the provider of both, and the further hub's servers."""
    monkeypatch.setattr(manifest, "COMMAND", OBEDIENT)
    first, lab = spaces
    both = TwoHubs(cluster, first)
    theirs = LeaseWorld(cluster, lab, instance=first)
    await both.provider._client.close()
    both.lab = lab
    both.provider = both.fresh()
    theirs.account(manifest.SERVICE_ACCOUNT)
    await both.open()
    yield both, theirs
    await both.close()
    await theirs.provider._client.close()


async def made_in(world: LeaseWorld, lease: Lease) -> Object:
    """Wait for a lease's pod in a namespace."""
    return await wait_for_async(lambda: world.lease_pod(lease) or {}, 120, "its pod")


async def test_namesakes_of_two_hubs_have_their_leases_beside_their_own_servers(
    hubs: tuple[LeaseWorld, LeaseWorld], lease_id: Callable[[str], str]
) -> None:
    both, lab = hubs
    servers = {world.namespace: world.server("stu") for world in hubs}
    free = await some_free(both, 2)
    ours = replace(lease_on(free[0], name=lease_id("ours")), user="stu")
    theirs = replace(lease_on(free[1], name=lease_id("theirs")), user="lab2/stu")
    for lease, world, other in ((ours, both, lab), (theirs, lab, both)):
        await both.provider.start(lease)
        made = await made_in(world, lease)
        assert other.lease_pod(lease) is None
        assert made["metadata"]["annotations"][labels.USER] == lease.user
        owner = servers[world.namespace]["metadata"]["uid"]
        assert made["metadata"]["ownerReferences"][0]["uid"] == owner
        await until(both, lease, stage="connecting", gone=False)
    # A service whose store was restored believes what pods say of their own hub's people alone.
    await both.restart()
    seen = {each.lease_id: each.record for each in await both.provider.observe()}
    assert {x.id: x.user for x in seen.values() if x is not None} == {
        ours.id: "stu", theirs.id: "lab2/stu",
    }  # fmt: skip
    path = f"{lab.pods_path}/{labels.lease_pod_name(theirs.id, theirs.attempt)}"
    both.api.patch(path, {"metadata": {"annotations": {labels.USER: "stu"}}})

    async def disbelieved() -> bool:
        (found,) = [x for x in await both.provider.observe() if x.lease_id == theirs.id]
        return found.record is None

    await wait_for_async(disbelieved, 60, "the pod in another's name is not believed")
    for lease in (ours, theirs):
        await both.provider.stop(ended(lease))


async def test_a_person_whose_server_is_at_another_hub_alone_has_none(
    hubs: tuple[LeaseWorld, LeaseWorld], lease_id: Callable[[str], str]
) -> None:
    both, lab = hubs
    lab.server("stu")
    (free,) = await some_free(both, 1)
    ours = replace(lease_on(free, name=lease_id("alone")), user="stu")
    await both.provider.start(ours)
    await until(both, ours, failed="server_pod_missing")
    assert lab.lease_pod(ours) is None
    await both.provider.stop(ended(ours))
