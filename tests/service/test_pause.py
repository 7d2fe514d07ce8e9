"""``gpulease admin pause`` and ``resume`` against a running service."""

from argparse import Namespace

import pytest

from gpulease.commands.admin import _pause, _set_drained
from gpulease.errors import GPULeaseError
from tests.helpers import wait_for_async


async def test_nothing_is_granted_until_it_is_resumed(run, capsys) -> None:
    async def said_to(client, action: str, pool: str = "") -> str:
        await _pause(client, Namespace(action=action, pool=pool))
        return capsys.readouterr().out

    async with run(gpus=1) as site:
        admin = site.client(site.hub.admin_token())
        assert "No more GPUs of" in await said_to(admin, "pause")
        assert "is paused already." in await said_to(admin, "pause")
        stu = site.client(site.hub.server_token("eve"))
        lease = await stu.ask({})

        async def waits() -> bool:
            return bool((await stu.lease(lease["id"]))["reason"] == "paused")

        await wait_for_async(waits, 30, "the request to wait")
        said = (await stu.lease(lease["id"]))["sentence"]
        assert "grant no GPUs of this kind at present" in said
        (pool,) = (await admin.call("GET", "health"))["pools"]
        assert "granted again" in await said_to(admin, "resume", pool)

        async def granted() -> bool:
            return bool((await stu.lease(lease["id"]))["state"] != "queued")

        await wait_for_async(granted, 30, "the request to be granted")
        with pytest.raises(GPULeaseError, match="There is no pool 'moon'"):
            await said_to(admin, "pause", "moon")
        with pytest.raises(GPULeaseError):
            await said_to(stu, "pause")


async def test_where_the_policy_is_a_file_it_is_said_what_to_write_there(run, tmp_path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("pools: {simulated-gpu: {}}\nclasses: {toy: {pool: simulated-gpu}}\n")
    async with run(policy_file=file) as site:
        admin = site.client(site.hub.admin_token())
        with pytest.raises(GPULeaseError) as refused:
            await _pause(admin, Namespace(action="pause", pool=""))
        assert (refused.value.reason, refused.value.status) == ("policy_pinned", 409)
        assert "paused: true at pools: simulated-gpu" in refused.value.next_step
        with pytest.raises(GPULeaseError) as refused:
            await _set_drained(admin, "gpu-1", drained=True)
        assert "drained_nodes: [gpu-1]" in refused.value.next_step
