"""Only a home that one node may mount speaks for the server's own node."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.manifests.server_limits import Homes
from gpulease.providers.kubernetes.observed.index import PodIndex
from tests.helpers import wait_for_async
from tests.providers.kubernetes.api_stream import playing, said
from tests.providers.kubernetes.server_pods import HOME, claim, server

RWX, RWO, ROX, ONE_POD = "ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"
NODES = frozenset({"gpu-1"})


def on(node, **spec):
    pod = server(nodeName=node, **spec)
    pod["metadata"]["annotations"] = {"hub.jupyter.org/username": "jane"}
    return pod


@asynccontextmanager
async def homes(directory, *answers):
    """Yield the homes, what the API server is asked, and the pods that are there."""
    async with playing(directory, *answers) as (stream, path):
        client, index = OfficialClient(path), PodIndex("hub a")
        found = Homes(client, index, HOME)
        try:
            yield found, stream.asked, index
        finally:
            await found.close()
            await client.close()


async def looked(found):
    """Wait until nothing is being looked at."""
    await wait_for_async(lambda: not found._looks, what="the claim was looked at")


@pytest.mark.parametrize(
    ("modes", "node"),
    [
        ((RWO,), "gpu-1"),
        ((RWO, ROX), "gpu-1"),
        ((RWX,), ""),
        ((RWO, RWX), ""),
        ((ROX,), ""),
        ((ONE_POD,), ""),  # mirrored anywhere
    ],
)
async def test_the_claims_access_modes_decide(tmp_path, modes, node):
    pod = on("gpu-1")
    async with homes(tmp_path, said(200, claim("claim-jane", *modes))) as (found, asked, _):
        found.offered(NODES)
        found.changed(None, pod)
        await looked(found)
        assert [found.preferred_node(pod) for _ in range(3)] == [node] * 3
        found.changed(pod, pod)
        assert len(asked) == 1, "one look is enough"
        assert "/namespaces/hub/persistentvolumeclaims/claim-jane" in asked[0][0]


async def test_nothing_is_asked_where_nothing_would_follow_from_it(tmp_path):
    bare = on("gpu-1", volumes=[{"name": "home", "emptyDir": {}}])
    made = on("gpu-1")
    made["metadata"]["uid"] = "another"
    made["spec"]["containers"][1]["volumeMounts"][0]["subPathExpr"] = "$(USER)"
    async with homes(tmp_path) as (found, asked, _):
        found.offered(NODES)
        for pod in (on("cpu-1"), bare, made, None):
            assert found.preferred_node(pod) == ""
        await asyncio.sleep(0)
        assert (asked, found._looks) == ([], {})


async def test_servers_that_were_there_before_the_gpus_were_known_are_looked_at(tmp_path):
    pod = on("gpu-1")
    async with homes(tmp_path, said(200, claim("claim-jane", RWO))) as (found, asked, index):
        index.change(None, pod)
        found.changed(None, pod)
        assert asked == []
        found.offered(NODES)
        await looked(found)
        assert found.preferred_node(pod) == "gpu-1"
        found.offered(NODES)
        assert len(asked) == 1


async def test_a_look_that_failed_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("gpulease.providers.kubernetes.manifests.server_limits._AGAIN", 0.01)
    away = said(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"})
    pod = on("gpu-1")
    async with homes(tmp_path, away, said(200, claim("claim-jane", RWO))) as (found, asked, _):
        found.offered(NODES)
        assert found.preferred_node(pod) == ""
        await wait_for_async(lambda: found.preferred_node(pod) == "gpu-1", 10, "the second look")
        assert len(asked) == 2
        found.changed(pod, None)
        assert (found._tied, found._looks) == ({}, {}), "a server that is gone is forgotten"
