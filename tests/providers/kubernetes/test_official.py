"""Answers that a real API server gives seldom or never: broken framing, odd statuses."""

import json

import pytest

from gpulease.providers.kubernetes.api.client import (
    NODES,
    PODS,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    Resource,
    UnavailableError,
)
from gpulease.providers.kubernetes.api.official import OfficialClient
from gpulease.system.loopback_ports import free_port
from tests.providers.kubernetes.api_stream import Script, playing, said, write_config


def event(kind, name, version):
    about = {"metadata": {"name": name, "resourceVersion": version}}
    return json.dumps({"type": kind, "object": about}).encode() + b"\n"


async def watched(path):
    client = OfficialClient(path)
    try:
        events = [event async for event in client.watch(PODS, "ns", since="7", labels="a=b")]
        assert events[0].kind == "OPENED"
        return [(event.kind, event.version) for event in events[1:]]
    finally:
        await client.close()


async def called(path, method, *args, **kwargs):
    client = OfficialClient(path)
    try:
        return await getattr(client, method)(*args, **kwargs)
    finally:
        await client.close()


def test_paths_of_the_api():
    assert PODS.path("ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert NODES.path() == "/api/v1/nodes"
    slices = Resource("resourceslices", "resource.k8s.io")
    assert slices.path(name="s", subresource="status") == (
        "/apis/resource.k8s.io/v1/resourceslices/s/status"
    )


async def test_a_watch_reads_events_however_they_are_cut(tmp_path):
    whole = event("ADDED", "a", "8") + event("MODIFIED", "a", "9") + event("BOOKMARK", "", "11")
    pieces = [whole[:5], whole[5:90], whole[90:91], whole[91:]]
    async with playing(tmp_path, Script(200, pieces)) as (stream, path):
        assert await watched(path) == [("ADDED", "8"), ("MODIFIED", "9"), ("BOOKMARK", "11")]
        first, headers, _ = stream.asked[0]
    assert "watch=true" in first
    assert "resourceVersion=7" in first
    assert "labelSelector=a%3Db" in first
    assert "allowWatchBookmarks=true" in first
    assert headers["authorization"] == "Bearer first-token"


async def test_half_an_event_at_the_end_is_no_event(tmp_path):
    async with playing(tmp_path, Script(200, [event("ADDED", "a", "8"), b'{"type": "ADD'])) as (
        _,
        path,
    ):
        assert await watched(path) == [("ADDED", "8")]


@pytest.mark.parametrize(
    "pieces",
    [[b"<html>login</html>\n"], [b"[1]\n"], [b'{"type": "ADDED"}\n'], [b"\xff\n"]],
    ids=["html", "list", "no object", "no text"],
)
async def test_what_is_no_event_breaks_the_watch(tmp_path, pieces):
    async with playing(tmp_path, Script(200, pieces)) as (_, path):
        with pytest.raises(UnavailableError):
            await watched(path)


async def test_a_cut_connection_breaks_the_watch(tmp_path):
    async with playing(tmp_path, Script(200, [event("ADDED", "a", "8")], broken=True)) as (_, path):
        with pytest.raises(UnavailableError):
            await watched(path)


async def test_an_error_in_the_stream_is_the_error_it_names(tmp_path):
    error = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    async with playing(tmp_path, Script(200, [json.dumps(error).encode() + b"\n"])) as (_, path):
        with pytest.raises(GoneError, match="too old"):
            await watched(path)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidError), (422, InvalidError), (403, ForbiddenError), (404, NotFoundError),
        (409, ConflictError), (410, GoneError), (429, UnavailableError), (500, UnavailableError),
        (503, UnavailableError),
    ],
)  # fmt: skip
async def test_each_status_has_its_error(tmp_path, status, kind):
    body = {"kind": "Status", "reason": "Because", "message": "the sentence"}
    async with playing(tmp_path, said(status, body, **{"Retry-After": "3"})) as (_, path):
        with pytest.raises(kind, match="the sentence") as caught:
            await called(path, "create", PODS, {"metadata": {"name": "p"}}, "ns")
    assert caught.value.status == status
    assert caught.value.reason == "Because"
    if kind is UnavailableError:
        assert caught.value.retry_after == 3.0
        assert isinstance(caught.value, OSError)


async def test_an_answer_that_is_no_object_is_none(tmp_path):
    async with playing(tmp_path, Script(200, [b"<html>"])) as (_, path):
        with pytest.raises(UnavailableError, match="JSON"):
            await called(path, "get", PODS, "p", "ns")


async def test_nobody_there_is_unavailable(tmp_path):
    write_config(tmp_path / "config", free_port(), "token")
    with pytest.raises(UnavailableError) as caught:
        await called(str(tmp_path / "config"), "list_all", PODS)
    assert "token" not in str(caught.value)


async def test_no_configuration_is_unavailable(tmp_path):
    with pytest.raises(UnavailableError, match="configuration"):
        await called(str(tmp_path / "none"), "list_all", PODS)


async def test_an_old_token_is_read_anew_once(tmp_path):
    denied = said(401, {"reason": "Unauthorized", "message": "who?"})
    async with playing(tmp_path, denied, said(200, {"items": []})) as (stream, path):
        client = OfficialClient(path)
        write_config(tmp_path / "kubeconfig", stream.port, "first-token")
        await client._opened()
        write_config(tmp_path / "kubeconfig", stream.port, "second-token")
        assert (await client.list_all(PODS)).items == []
        await client.close()
    assert [headers["authorization"] for _, headers, _ in stream.asked] == [
        "Bearer first-token", "Bearer second-token",
    ]  # fmt: skip


async def test_a_token_that_stays_refused_is_unavailable(tmp_path):
    denied = said(401, {"reason": "Unauthorized", "message": "who?"})
    async with playing(tmp_path, denied, denied) as (_, path):
        with pytest.raises(UnavailableError, match=r"who\?"):
            await called(path, "list_all", PODS)


async def test_pages_are_put_together(tmp_path):
    one = {"items": [{"a": 1}], "metadata": {"resourceVersion": "5", "continue": "more"}}
    two = {"items": [{"a": 2}], "metadata": {"resourceVersion": "5"}}
    async with playing(tmp_path, said(200, one), said(200, two)) as (stream, path):
        found = await called(path, "list_all", PODS, "ns")
    assert ([each["a"] for each in found.items], found.version) == ([1, 2], "5")
    assert "continue=more" in stream.asked[1][0]


async def test_a_delete_names_the_very_object_and_never_without_grace(tmp_path):
    async with playing(tmp_path, said(200, {})) as (stream, path):
        await called(path, "delete", PODS, "p", "ns", uid="u-1")
    body = json.loads(stream.asked[0][2])
    assert body["preconditions"] == {"uid": "u-1"}
    assert "gracePeriodSeconds" not in body
    with pytest.raises(ValueError, match="grace"):
        await OfficialClient(path).delete(PODS, "p", "ns", grace=0)


async def test_each_call_is_observed(tmp_path):
    seen = []
    async with playing(tmp_path, said(403, {}), said(200, {"items": []})) as (_, path):
        client = OfficialClient(path, observe=lambda *call: seen.append(call))
        with pytest.raises(ForbiddenError):
            await client.create(PODS, {"x": 1}, "ns", dry_run=True)
        await client.list_all(PODS)
        await client.close()
    assert [call[:3] for call in seen] == [("create", "pods", 403), ("list", "pods", 200)]


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ({"authenticated": True, "audiences": ["gpulease"]}, True),
        ({"authenticated": True, "audiences": ["other"]}, False),
        ({"authenticated": True}, False),
        ({"authenticated": False, "error": "expired"}, False),
    ],
)
async def test_a_token_counts_only_for_its_audience(tmp_path, status, known):
    bound = {
        "authentication.kubernetes.io/pod-name": ["pod"],
        "authentication.kubernetes.io/pod-uid": ["uid"],
        "authentication.kubernetes.io/node-name": ["node"],
    }
    user = {"username": "system:serviceaccount:ns:gpulease-lease", "extra": bound, "groups": ["g"]}
    async with playing(tmp_path, said(201, {"status": {**status, "user": user}})) as (_, path):
        found = await called(path, "review", "the-token", "gpulease")
    assert (found is not None) == known
    if found is not None:
        assert (found.pod, found.pod_uid, found.node) == ("pod", "uid", "node")
        assert found.service_account == ("ns", "gpulease-lease")


async def test_of_each_page_only_what_is_kept_stays(tmp_path):
    """All pods of a large cluster are a gigabyte: no more than a page is held whole."""
    pages = [
        {"metadata": {"continue": "2"}, "items": [{"n": 1}, {"n": 2}]},
        {"metadata": {"resourceVersion": "9"}, "items": [{"n": 3}]},
    ]
    seen = []
    async with playing(tmp_path, *(said(200, each) for each in pages)) as (stream, path):

        def keep(item):
            seen.append((item["n"], len(stream.asked)))
            return None if item["n"] == 2 else {"kept": item["n"]}

        found = await called(path, "list_all", PODS, keep=keep)
    assert found.items == [{"kept": 1}, {"kept": 3}]
    assert found.version == "9"
    assert seen == [(1, 1), (2, 1), (3, 2)]


ALL_SENT = {
    "type": "BOOKMARK",
    "object": {
        "metadata": {
            "resourceVersion": "9",
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
    },
}


def stream_of(*messages):
    return Script(200, [json.dumps(each).encode() + b"\n" for each in messages])


def told(kind, name):
    return {"type": kind, "object": {"metadata": {"name": name, "namespace": "ns"}}}


async def test_a_streamed_list_is_what_was_there_at_its_end(tmp_path):
    """An object may change or go while the others are sent."""
    changed = told("MODIFIED", "a")
    changed["object"]["metadata"]["labels"] = {"x": "y"}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    told_all = [told("ADDED", "a"), told("ADDED", "b"), bookmark, changed, told("DELETED", "b")]
    async with playing(tmp_path, stream_of(*told_all, ALL_SENT)) as (stream, path):
        found = await called(path, "list_all", PODS, "ns", streamed=True)
    assert [each["metadata"]["name"] for each in found.items] == ["a"]
    assert found.items[0]["metadata"]["labels"] == {"x": "y"}
    assert found.version == "9"
    asked = stream.asked[0][0]
    assert "sendInitialEvents=true" in asked
    assert "resourceVersionMatch=NotOlderThan" in asked


PAGE = said(200, {"items": [{"n": 1}], "metadata": {"resourceVersion": "5"}})


@pytest.mark.parametrize(
    "answer",
    [
        said(422, {"code": 422, "message": "sendInitialEvents is forbidden for watch"}),
        said(500, {"code": 500, "message": "etcd does not tell how far its watches are"}),
        stream_of(told("ADDED", "a")),  # and then nothing more
        stream_of({"type": "ERROR", "object": {"code": 504, "message": "timeout"}}),
    ],
    ids=["refused", "fails", "ends early", "fails later"],
)
async def test_a_server_that_streams_no_lists_is_asked_for_pages_from_then_on(tmp_path, answer):
    async with playing(tmp_path, answer, PAGE, PAGE) as (stream, path):
        client = OfficialClient(path)
        found = [await client.list_all(PODS, streamed=True) for _ in range(2)]
        await client.close()
    assert [each.items for each in found] == [[{"n": 1}], [{"n": 1}]]
    assert ["sendInitialEvents" in first for first, _, _ in stream.asked] == [True, False, False]


async def test_a_server_that_is_away_is_asked_for_a_stream_again(tmp_path):
    path = tmp_path / "away"
    write_config(path, free_port(), "t")
    client = OfficialClient(str(path))
    with pytest.raises(UnavailableError):
        await client.list_all(PODS, streamed=True)
    assert client._streams
    await client.close()


async def test_the_proxy_of_the_environment_is_used(tmp_path, monkeypatch):
    async with playing(tmp_path, said(200, {"metadata": {"name": "p"}})) as (proxy, path):
        config = (tmp_path / "kubeconfig").read_text().replace("127.0.0.1", "api.test")
        (tmp_path / "kubeconfig").write_text(config)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        await called(path, "get", PODS, "p", "ns")
    assert proxy.asked[0][0].startswith("GET http://api.test:")


@pytest.mark.parametrize("exempt", ["127.0.0.1", "*"])
async def test_a_server_that_the_environment_exempts_is_met_without_it(
    tmp_path, monkeypatch, exempt
):
    async with playing(tmp_path, said(200, {"metadata": {"name": "p"}})) as (api, path):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv("no_proxy", exempt)
        await called(path, "get", PODS, "p", "ns")
    assert api.asked[0][0].startswith("GET /api/v1/")


async def test_what_a_netrc_says_of_the_server_never_replaces_the_token(tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with playing(tmp_path, said(200, {"metadata": {"name": "p"}})) as (api, path):
        await called(path, "get", PODS, "p", "ns")
    assert api.asked[0][1]["authorization"] == "Bearer first-token"
