"""How pods wait for their turn, against a client that answers when it is told to.

What a start meets on its way is a matter of tests/cluster.
"""

import asyncio
from types import SimpleNamespace

import pytest

from gpulease.policy.model import GPUClass
from gpulease.policy.pods import AskKind, PodAsk
from gpulease.providers.kubernetes.api.client import (
    CLAIM_TEMPLATES,
    NETWORK_POLICIES,
    Limiter,
    UnavailableError,
)
from gpulease.providers.kubernetes.api.watch import Deletes
from gpulease.providers.kubernetes.manifests.pod_network import PodNetwork
from gpulease.providers.kubernetes.starts import starts as module
from gpulease.providers.kubernetes.starts.starts import Start, Starts
from tests.helpers import wait_for_async
from tests.providers.kubernetes.server_pods import SETTINGS, lease, server


class SlowClient:
    """Creates pods once it is opened; it fails as often as it is told."""

    def __init__(self):
        self.open = asyncio.Event()
        self.created, self.images, self.failures = [], [], 0
        self.templates, self.claimed = [], set()
        self.bodies = {}
        self.now = self.most = self.fail_at = 0

    async def create(self, resource, body, namespace="", *, dry_run=False):
        self.now += 1
        self.most = max(self.most, self.now)
        await self.open.wait()
        self.now -= 1
        if self.failures or len(self.created) + 1 == self.fail_at:
            self.failures, self.fail_at = max(0, self.failures - 1), 0
            raise UnavailableError("away")
        if resource is NETWORK_POLICIES:
            self.created.append("network of " + body["metadata"]["ownerReferences"][0]["uid"])
            return body
        if resource is CLAIM_TEMPLATES:
            self.templates.append(body)
            return body
        claims = body["spec"].get("resourceClaims", [])
        self.claimed |= {each["resourceClaimTemplateName"] for each in claims}
        self.created.append(body["metadata"]["name"])
        self.bodies[body["metadata"]["name"]] = body
        self.images.append(body["spec"]["containers"][0]["image"])
        return body

    async def get(self, resource, name, namespace=""):
        body = self.bodies[name]
        return {**body, "metadata": body["metadata"] | {"uid": f"uid of {name}"}}


class World:
    """Servers without volumes, so that a start is one create."""

    def __init__(self, rate, pod=None):
        self.client, self.servers = SlowClient(), {}
        self.waits = 0
        self.limiter = Limiter(rate)
        wait = self.limiter.wait

        async def counted():
            self.waits += 1
            await wait()

        self.limiter.wait = counted
        cluster = SimpleNamespace(
            server_pod=lambda user, name: self.servers.get(user),
            pod=lambda key: None,
            node=lambda name: None,
            nodes=[],
        )
        self.starts = Starts(
            self.client,
            cluster,
            self.limiter,
            Deletes(self.client),
            classes=lambda: {"gpu": GPUClass("gpu", "cards", pod=pod)},
            settings=SETTINGS,
            wake=lambda: None,
            network=PodNetwork(self.client, ["hub"]),
        )

    def begin(self, number, *, there=True, **changed):
        user = f"u{number}"
        if there:
            self.servers[user] = server(volumes=[])
        start = Start(lease(id=f"lease{number:03d}", user=user, **changed))
        self.starts.begin(start)
        return start

    async def close(self, all_of_them):
        await self.starts.close(all_of_them)


async def test_only_so_many_are_on_their_way_and_each_is_created_once():
    world = World(rate=10000)
    begun = [world.begin(number) for number in range(60)]
    await wait_for_async(lambda: world.client.now == 16, 60, "sixteen under way")
    world.client.open.set()
    await wait_for_async(lambda: all(each.created for each in begun), 60, "all created")
    assert world.client.most == 16
    assert len(world.client.created) == len(set(world.client.created)) == 60
    await world.close(begun)


async def test_servers_that_are_not_there_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_SERVER_SECONDS", 3600.0)
    world = World(rate=10000)
    world.client.open.set()
    missing = [world.begin(number, there=False) for number in range(40)]
    there = world.begin(99)
    await wait_for_async(lambda: there.created, 60, "the one whose server is there")
    assert not any(each.created or each.failed for each in missing)
    await world.close([*missing, there])


async def test_what_one_request_needs_leaves_no_template_behind_its_server():
    """A student may need another amount of memory each time; what a class asks for stays."""
    world = World(rate=10000, pod=PodAsk(AskKind.DRA))
    world.client.open.set()
    needy = world.begin(0, needs="memory>=20GiB")
    plain = world.begin(1)
    await wait_for_async(lambda: needy.created and plain.created, 60, "both created")
    (own,) = (each for each in world.client.templates if "ownerReferences" in each["metadata"])
    assert own["metadata"]["ownerReferences"][0]["uid"] == needy.owner
    (shared,) = (each for each in world.client.templates if each is not own)
    assert own["metadata"]["name"] != shared["metadata"]["name"]
    assert world.client.claimed == {own["metadata"]["name"], shared["metadata"]["name"]}
    await world.close([needy, plain])


async def test_a_pod_on_a_courses_seat_has_the_image_of_the_course():
    world = World(rate=10000)
    world.client.open.set()
    own = world.begin(0, image="registry.example.org/cs101:2026")
    plain = world.begin(1)
    await wait_for_async(lambda: own.created and plain.created, 60, "both created")
    images = dict(zip(world.client.created, world.client.images, strict=True))
    assert images["gpulease-lease000-2"] == "registry.example.org/cs101:2026"
    assert images["gpulease-lease001-2"] == "hub.test/singleuser:5"
    await world.close([own, plain])


async def test_who_is_not_wanted_any_more_takes_nobodys_turn():
    world = World(rate=0.5)  # a turn each two seconds: forty would take over a minute
    world.client.open.set()
    first = world.begin(0)
    await wait_for_async(lambda: first.created, 60, "the first")
    withdrawn = [world.begin(number) for number in range(1, 41)]
    last = world.begin(41)
    for each in withdrawn:
        each.unwanted = True
    await wait_for_async(lambda: last.created, 60, "the last")
    assert len(world.client.created) == 2
    assert world.waits <= 3, "the first, perhaps one that was about to go, the last"
    await world.close([first, *withdrawn, last])


async def test_a_start_without_an_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_FIRST_WAIT", 0.01)
    world = World(rate=10000)
    world.client.failures = 2
    world.client.open.set()
    start = world.begin(1)
    await wait_for_async(lambda: start.created, 60)
    assert (world.client.created, start.failed, start.detail) == (["gpulease-lease001-2"], "", "")
    await world.close([start])


async def test_a_lease_on_several_nodes_gets_a_pod_for_each_of_them_in_its_turn():
    world = World(rate=10000)
    world.client.open.set()
    several = {"count": 6, "nodes": 3, "devices": tuple(f"n{n // 2}/gpu/{n}" for n in range(6))}
    start = world.begin(0, **several)
    await wait_for_async(lambda: start.complete, 60, "all pods")
    names = ["gpulease-lease000-2", "gpulease-lease000-2-1", "gpulease-lease000-2-2"]
    between = "network of uid of gpulease-lease000-2"
    assert world.client.created == [names[0], between, *names[1:]]
    assert [start.keys[rank][1] for rank in range(3)] == names
    assert world.waits == 3
    again = world.begin(1, **several)
    again.created.add(0)  # it was there already, and perhaps no network
    first = "gpulease-lease001-2"
    world.client.bodies[first] = {"metadata": world.client.bodies[names[0]]["metadata"]}
    await wait_for_async(lambda: again.complete, 60, "what was missing")
    assert world.client.created[4:] == [f"network of uid of {first}", f"{first}-1", f"{first}-2"]
    await world.close([start, again])


async def test_pods_that_were_created_stay_so_when_the_next_one_has_no_answer(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "_FIRST_WAIT", 0.01)
    world = World(rate=10000)
    world.client.open.set()
    world.client.fail_at = 3
    start = world.begin(0, count=3, nodes=3, devices=("a/gpu/0", "b/gpu/0", "c/gpu/0"))
    await wait_for_async(lambda: start.complete, 60, "all pods")
    pods = [each for each in world.client.created if not each.startswith("network")]
    assert len(pods) == 3
    assert len(set(pods)) == 3
    await world.close([start])
