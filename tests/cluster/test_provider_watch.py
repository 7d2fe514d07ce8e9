"""Live copies of a real API server's objects while the wire, the server and its history fail."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpulease.providers.kubernetes.api.client import (
    EVENTS,
    NODES,
    PODS,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    Resource,
)
from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.providers.kubernetes.api.watch import Watched
from testcluster.cluster import Cluster
from testcluster.pods import pod
from testcluster.relay import relayed
from tests.helpers import wait_for_async

pytestmark = pytest.mark.cluster
CONFIG_MAPS = Resource("configmaps")
#: What a page says once for all its objects.
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def config_map(namespace: str, name: str, **data: str) -> dict:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@asynccontextmanager
async def running(watched: Watched) -> AsyncIterator[Watched]:
    task = asyncio.create_task(watched.run())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(watched: Watched) -> set[str]:
    return {name for _, name in watched.objects if not name.startswith("kube-")}


async def shows(watched: Watched, *wanted: str) -> None:
    await wait_for_async(lambda: names(watched) == set(wanted), 120, f"{wanted} to be shown")


async def test_a_cut_wire_goes_on_where_it_was(cluster: Cluster, namespace: str, tmp_path) -> None:
    async with relayed(cluster.layout.kubeconfig, tmp_path) as (relay, path):
        client = OfficialClient(str(path))
        async with running(Watched(client, CONFIG_MAPS, namespace)) as watched:
            cluster.api.create(config_map(namespace, "one"))
            await shows(watched, "one")
            before = relay.connections
            relay.cut()
            cluster.api.create(config_map(namespace, "two"))
            cluster.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/one")
            await shows(watched, "two")
            await wait_for_async(lambda: watched.problem == "", 120)
            assert relay.connections > before
            assert watched.lists == 1, "it went on from the version that it had"
        await client.close()


async def test_while_the_server_is_away_it_says_so(
    cluster: Cluster, namespace: str, tmp_path
) -> None:
    async with relayed(cluster.layout.kubeconfig, tmp_path) as (relay, path):
        client = OfficialClient(str(path))
        async with running(Watched(client, CONFIG_MAPS, namespace)) as watched:
            cluster.api.create(config_map(namespace, "one"))
            await shows(watched, "one")
            relay.away = True
            relay.cut()
            await wait_for_async(lambda: watched.problem, 120, "the problem to be noticed")
            assert names(watched) == {"one"}, "what was known is still shown"
            relay.away = False
            await wait_for_async(lambda: watched.problem == "", 120, "the server to be back")
        await client.close()


async def test_a_history_that_was_compacted_away_is_listed_anew(
    cluster: Cluster, namespace: str
) -> None:
    client = OfficialClient(str(cluster.layout.kubeconfig))
    gone = []
    watched = Watched(
        client, CONFIG_MAPS, namespace, changed=lambda a, b: gone.append(a) if b is None else None
    )
    cluster.api.create(config_map(namespace, "one"))
    async with running(watched):
        await shows(watched, "one")
    old = (await client.list_all(NODES)).version
    cluster.api.create(config_map(namespace, "two"))
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/one")
    now = (await client.list_all(CONFIG_MAPS, namespace)).version
    with cluster.without("kube-apiserver"):
        _compact(int(now))
    await asyncio.to_thread(cluster.wait_for_api)
    with pytest.raises(GoneError):
        async for _ in client.watch(CONFIG_MAPS, namespace, since=old):
            pass
    async with running(watched):
        await shows(watched, "two")
        await wait_for_async(lambda: watched.problem == "", 120)
        assert watched.lists == 2
    assert [each["metadata"]["name"] for each in gone if each] == ["one"], "its end is told, too"
    await client.close()


def _compact(revision: int) -> None:
    """Forget etcd's history up to a revision."""
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request("http://127.0.0.1:2379/v3/kv/compaction", body)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


async def test_the_server_is_killed_and_comes_back(cluster: Cluster, namespace: str) -> None:
    client = OfficialClient(str(cluster.layout.kubeconfig))
    async with running(Watched(client, CONFIG_MAPS, namespace)) as watched:
        cluster.api.create(config_map(namespace, "one"))
        await shows(watched, "one")
        with cluster.without("kube-apiserver"):
            await wait_for_async(lambda: watched.problem, 120, "the problem to be noticed")
        await asyncio.to_thread(cluster.wait_for_api)
        cluster.api.create(config_map(namespace, "two"))
        await shows(watched, "one", "two")
        await wait_for_async(lambda: watched.problem == "", 120)
    await client.close()


async def test_each_refusal_has_its_error(cluster: Cluster, namespace: str) -> None:
    client = OfficialClient(str(cluster.layout.kubeconfig))
    with pytest.raises(NotFoundError):
        await client.get(PODS, "nobody", namespace)
    with pytest.raises(InvalidError):
        await client.create(PODS, {"metadata": {"name": "Not A Name"}, "spec": {}}, namespace)
    body = pod(namespace, "twice")
    assert (await client.create(PODS, body, namespace, dry_run=True))["metadata"]["name"] == "twice"
    made = await client.create(PODS, body, namespace)
    with pytest.raises(ConflictError):
        await client.create(PODS, body, namespace)
    with pytest.raises(ConflictError):
        await client.delete(PODS, "twice", namespace, uid="another")
    patched = await client.patch(PODS, "twice", {"metadata": {"labels": {"a": "b"}}}, namespace)
    assert patched["metadata"]["labels"] == {"a": "b"}
    await client.delete(PODS, "twice", namespace, uid=made["metadata"]["uid"], grace=1)
    listed = await client.list_all(EVENTS, namespace, fields="involvedObject.kind=Pod")
    assert isinstance(listed.items, list)
    await client.close()


async def test_a_missing_right_is_named(cluster: Cluster, namespace: str, tmp_path) -> None:
    account = cluster.api.as_account(namespace, "default")
    document = json.loads(cluster.layout.kubeconfig.read_text(encoding="utf-8"))
    document["users"][0]["user"] = {"token": account._headers["Authorization"].split()[1]}
    path = tmp_path / "poor"
    path.write_text(json.dumps(document), encoding="utf-8")
    client = OfficialClient(str(path))
    with pytest.raises(ForbiddenError, match="cannot list resource"):
        await client.list_all(PODS, namespace)
    async with running(Watched(client, NODES)) as watched:
        await wait_for_async(lambda: "cannot list resource" in watched.problem, 120)
    await client.close()


async def test_a_list_in_pages_is_whole(cluster: Cluster, namespace: str, monkeypatch) -> None:
    monkeypatch.setattr("gpulease.providers.kubernetes.api.official.PAGE", 2)
    for number in range(5):
        cluster.api.create(config_map(namespace, f"m{number}"))
    client = OfficialClient(str(cluster.layout.kubeconfig))
    found = await client.list_all(CONFIG_MAPS, namespace)
    shown = {each["metadata"]["name"] for each in found.items}
    assert {f"m{number}" for number in range(5)} <= shown
    await client.close()


async def test_a_streamed_list_comes_from_the_cache_and_a_watch_goes_on_from_it(
    cluster: Cluster, namespace: str
) -> None:
    """No page of a large cluster's pods is ever held whole, where the server can do that."""
    for name in ("one", "two"):
        cluster.api.create(config_map(namespace, name))
    calls: list[tuple[str, int]] = []
    client = OfficialClient(
        str(cluster.layout.kubeconfig),
        observe=lambda verb, _, status, __: calls.append((verb, status)),
    )
    try:
        found = await client.list_all(CONFIG_MAPS, namespace, streamed=True)
        assert calls == [("watch", 200)]
        paged = await client.list_all(CONFIG_MAPS, namespace)
        assert sorted(
            json.dumps({**CONFIG_MAP, **each}, sort_keys=True) for each in found.items
        ) == sorted(json.dumps({**CONFIG_MAP, **each}, sort_keys=True) for each in paged.items)
        cluster.api.create(config_map(namespace, "three"))
        async with running(Watched(client, CONFIG_MAPS, namespace, streamed=True)) as watched:
            await shows(watched, "one", "two", "three")
            assert watched.problem == ""
        async for event in client.watch(CONFIG_MAPS, namespace, since=found.version, seconds=30):
            if event.kind == "ADDED":
                assert event.object["metadata"]["name"] == "three"
                break
    finally:
        await client.close()
