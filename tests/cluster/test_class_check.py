"""A class whose pods the API server would not take is on Health before anybody asks for it."""

from dataclasses import replace

import pytest

from gpulease.policy.model import GPUClass
from gpulease.policy.pods import PodAsk
from gpulease.providers.kubernetes.checkup import pods
from testcluster.lease_world import CARD, LeaseWorld
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


async def test_a_missing_runtime_class_is_told_until_it_is_there(
    world: LeaseWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods, "_SOON", 0.5)
    name = f"gpus-{world.namespace}"
    await wait_for_async(lambda: world.provider._check._seen != (), 120, "a first look")
    assert "takes no pod" not in world.provider.problem()

    other = GPUClass("other", "cards", pod=PodAsk(runtime_class=name))
    world.classes = (CARD, other, replace(other, name="more"))
    await world.provider.devices()
    await wait_for_async(lambda: name in world.provider.problem(), 120, "the class to be missed")
    said = world.provider.problem()
    assert "the cluster takes no pod of class other, class more: " in said
    assert f'RuntimeClass "{name}" not found' in said
    assert "Make that RuntimeClass" in said

    document = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    world.api.create({**document, "metadata": {"name": name}})
    try:
        await wait_for_async(
            lambda: "takes no pod" not in world.provider.problem(), 120, "nothing to be missing"
        )
    finally:
        world.api.delete(f"{CLASSES}/{name}")
