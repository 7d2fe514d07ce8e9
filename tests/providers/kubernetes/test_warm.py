"""Pods that stand ready: claimed once, by who may have them, whatever the API server answers."""

import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from gpulease.policy.capacity import ReadyPods
from gpulease.policy.catalog import Warm
from gpulease.policy.model import Device, GPUClass, LeaseState
from gpulease.policy.pods import PodAsk
from gpulease.protocol import labels
from gpulease.protocol import names as protocol
from gpulease.providers.kubernetes.api.client import (
    ForbiddenError,
    Limiter,
    NotFoundError,
    UnavailableError,
)
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.manifests.manifest import Settings
from gpulease.providers.kubernetes.observed.index import PodIndex
from gpulease.providers.kubernetes.warm.warm import REST, WarmPods
from tests.helpers import wait_for_async
from tests.providers.kubernetes.server_pods import SETTINGS, lease, server

CLASS = GPUClass("card", "cards", pod=PodAsk(image="example.org/gpu:1"), warm=Warm(1))
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODE = "gpu-1"
SLOT = f"{NODE}/nvidia.com/gpu/0"


class Api:
    """An API server with pods, whose changes are shown at once; it fails as it is told."""

    def __init__(self):
        self.index = PodIndex(SETTINGS.instance)
        self.pods, self.failing, self.after = {}, [], []
        self.patches, self.number = 0, 0

    def put(self, pod):
        self.index.change(self.pods.get(key_of(pod)), pod)
        self.pods[key_of(pod)] = pod

    def drop(self, pod):
        self.index.change(self.pods.pop(key_of(pod)), None)

    async def create(self, resource, body, namespace="", *, dry_run=False):
        self._fail()
        self.number += 1
        pod = copy.deepcopy(body)
        pod["metadata"] |= {"uid": f"uid-{self.number}", "creationTimestamp": START.isoformat()}
        pod["spec"]["nodeName"] = NODE
        pod["status"] = {"phase": "Running", "startTime": START.isoformat()}
        self.put(pod)
        return pod

    async def patch(self, resource, name, body, namespace=""):
        self._fail()
        self.patches += 1
        if (namespace, name) not in self.pods:
            raise NotFoundError("gone", status=404)
        pod = copy.deepcopy(self.pods[namespace, name])
        meta = body["metadata"]
        assert meta["uid"] == pod["metadata"]["uid"]
        marks = pod["metadata"]["labels"] | meta["labels"]
        pod["metadata"]["labels"] = {k: v for k, v in marks.items() if v is not None}
        pod["metadata"]["annotations"] |= meta["annotations"]
        pod["metadata"]["ownerReferences"] = meta["ownerReferences"]
        pod["spec"] |= body["spec"]
        self.put(pod)
        if self.after:
            raise self.after.pop()
        return pod

    async def get(self, resource, name, namespace=""):
        self._fail()
        if (namespace, name) not in self.pods:
            raise NotFoundError("gone", status=404)
        return self.pods[namespace, name]

    def _fail(self):
        if self.failing:
            raise self.failing.pop()


class World:
    """Pods that stand ready over such a server, in the namespace of one notebook server."""

    def __init__(self, classes=(CLASS,), namespaces=("hub",)):
        self.api, self.now, self.woken = Api(), START, 0
        self.classes, self.namespaces = classes, namespaces
        self.told, self.gone = [], []
        self.server = server(volumes=[])
        self.server["metadata"]["annotations"] = {labels.USER: "jane", labels.SERVER: ""}
        self.api.put(self.server)
        self.pods = self.fresh()

    def fresh(self):
        cluster = SimpleNamespace(
            instance=SETTINGS.instance, pods=self.api.index, pod=lambda key: self.api.pods.get(key)
        )
        return WarmPods(
            self.api,
            cluster,
            SimpleNamespace(begin=self._delete),
            SimpleNamespace(),
            Settings(SETTINGS, self.namespaces),
            limiter=Limiter(10000),
            classes=lambda: self.classes,
            wake=self._wake,
            clock=lambda: self.now,
        )

    def _wake(self):
        self.woken += 1

    def _delete(self, pod):
        self.gone.append(pod["metadata"]["uid"])
        self.api.drop(pod)

    def keep(self, number=1, granted=(), free=4):
        devices = [Device(f"{NODE}/nvidia.com/gpu/{n}", "cards", node=NODE) for n in range(free)]
        self.pods.keep(ReadyPods({"card": number}, dict(granted)), devices)

    async def stand(self, number=1, free=4):
        """Have so many pods stand ready."""
        self.keep(number, free=free)
        await wait_for_async(lambda: len(self.api.index.warm) == number, 30, "the pods")
        for pod in self.api.index.warm.values():
            self.pods.ready(pod["metadata"]["uid"], self.told.append)
        return [pod["metadata"]["uid"] for pod in self.api.index.warm.values()]

    async def take(self, name="lease-1", **changed):
        wanted = {"gpu_class": "card", "count": 1, "devices": (SLOT,), "attempt": 1}
        held = lease(id=name, **(wanted | changed))
        return held, await self.pods.take(held, self.classes[0], self.server)


async def test_a_lease_takes_the_pod_that_stands_ready_and_the_pod_is_told_once():
    world = World()
    (uid,) = await world.stand()
    held, key = await world.take()
    pod = world.api.pods[key]
    assert pod["metadata"]["uid"] == uid
    assert pod["metadata"]["ownerReferences"][0]["uid"] == world.server["metadata"]["uid"]
    assert world.api.index.leases == {held.id: {1: {0: pod}}}
    assert not world.api.index.warm
    (told,) = world.told
    assert told[protocol.ENV_LEASE] == held.id
    assert told["COURSE"] == "ml-1"
    assert not {"HF_TOKEN", "JUPYTERHUB_API_TOKEN", "DATABASE"} & told.keys()


async def test_one_pod_is_never_two_leases():
    world = World()
    await world.stand()
    (_, first), (_, second) = await world.take("one"), await world.take("two")
    assert first is not None
    assert second is None
    assert world.api.patches == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"count": 2},
        {"image": "example.org/course:1"},
        {"needs": "memory>=20GiB"},
        {"devices": ()},
        {"devices": ("other/nvidia.com/gpu/0",)},
    ],
)
async def test_who_needs_another_pod_gets_none_and_the_plan_makes_room(changed):
    world = World()
    await world.stand()
    woken = world.woken
    held, key = await world.take(**changed)
    assert key is None
    assert world.woken > woken
    # The one device of the node was granted to a lease that the pod cannot serve.
    world.keep(1, [(SLOT, (held.id, "card"))], free=1)
    assert world.gone == ["uid-1"]


async def test_a_pod_that_is_not_ready_yet_is_not_taken_and_one_for_other_servers_neither():
    world = World()
    (uid,) = await world.stand()
    world.pods.lost(uid, [].append)  # an old channel's end says nothing
    assert uid in world.pods._lines
    world.pods.lost(uid, world.told.append)
    assert (await world.take())[1] is None
    world.pods.ready(uid, world.told.append)
    world.server["spec"]["containers"][1]["securityContext"]["runAsUser"] = 4711
    world.server["metadata"]["uid"] = "another"
    assert (await world.take("other"))[1] is None
    assert not world.api.patches


async def test_a_claim_without_an_answer_that_was_carried_out_is_found_again():
    world = World()
    await world.stand()
    world.api.after = [UnavailableError("away")]
    with pytest.raises(UnavailableError):
        await world.take()
    assert not world.told
    world.api.failing = [UnavailableError("still away")]
    with pytest.raises(UnavailableError):
        await world.take()
    _, key = await world.take()
    assert key is not None
    assert (world.api.patches, len(world.told)) == (1, 1)


async def test_a_claim_without_an_answer_that_was_not_carried_out_is_made_anew():
    world = World()
    await world.stand()
    world.api.failing = [UnavailableError("away")]
    with pytest.raises(UnavailableError):
        await world.take()
    _, key = await world.take()
    assert key is not None
    assert (world.api.patches, len(world.told)) == (1, 1)


async def test_without_the_right_leases_start_as_ever_and_health_says_what_to_apply():
    world = World()
    await world.stand()
    world.api.failing = [ForbiddenError("cannot patch", status=403)]
    assert (await world.take())[1] is None
    assert "warm.enabled" in world.pods.problem
    assert not world.told


async def test_a_pod_that_went_meanwhile_is_passed_over():
    world = World()
    await world.stand(2)
    first = next(iter(world.api.index.warm))
    world.api.pods.pop(first)  # our copy shows it still
    _, key = await world.take()
    assert key not in (None, first)


async def test_a_service_that_was_restarted_tells_a_claimed_pod_again():
    world = World()
    (uid,) = await world.stand()
    held, key = await world.take()
    world.pods, world.told = world.fresh(), []
    world.pods.ready(uid, world.told.append)
    assert not world.told  # whose it is, the store will say
    starting = lease(**{**vars(held), "state": LeaseState.STARTING})
    world.pods.resume(starting, world.api.pods[key], world.server)
    (told,) = world.told
    assert told[protocol.ENV_LEASE] == held.id
    world.pods.ready(uid, world.told.append)
    assert world.told == [told, told]


async def test_what_is_lacking_is_made_once_and_what_is_too_much_goes():
    world = World()
    await world.stand(2)
    world.keep(2)
    assert len(world.api.index.warm) == 2
    world.keep(1)
    assert len(world.gone) == 1
    world.keep(0)
    assert len(world.gone) == 2


async def test_another_image_replaces_what_stands_ready():
    world = World()
    await world.stand()
    changed = GPUClass("card", "cards", pod=PodAsk(image="example.org/gpu:2"), warm=Warm(1))
    world.classes = (changed,)
    await world.stand()
    assert world.gone == ["uid-1"]
    (pod,) = world.api.index.warm.values()
    assert pod["spec"]["containers"][0]["image"] == "example.org/gpu:2"


async def test_after_one_that_came_to_nothing_there_is_a_rest():
    world = World()
    (uid,) = await world.stand()
    (pod,) = world.api.index.warm.values()
    pod["status"]["phase"] = "Failed"
    world.keep()
    assert world.gone == [uid]
    world.keep()
    assert not world.api.index.warm
    assert not world.pods._making["card"]
    world.now += REST + timedelta(seconds=1)
    await world.stand()


async def test_none_is_made_without_a_server_or_for_several_namespaces():
    world = World(namespaces=("hub", "jupyter-*"))
    world.keep()
    assert not world.pods._making["card"]
    assert "several namespaces" in world.pods.problem
    world = World()
    world.api.drop(world.server)
    world.keep()
    await wait_for_async(lambda: not world.pods._making["card"], 30, "the attempt")
    assert not world.api.index.warm


async def test_the_time_of_nobodys_devices_is_counted_by_class():
    world = World()
    await world.stand(2)
    world.now += timedelta(seconds=90)
    world.keep(2)
    assert world.pods.seconds() == {"card": 180.0}
    await world.take()
    world.now += timedelta(seconds=10)
    world.keep(2)
    assert world.pods.seconds() == {"card": 10.0}
