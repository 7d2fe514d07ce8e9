"""The live copy against a scripted server; a real one cuts and compacts in tests/cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpulease.channel.timing import BackOff
from gpulease.providers.kubernetes.api import watch as module
from gpulease.providers.kubernetes.api.client import (
    PODS,
    RESOURCE_SLICES,
    ForbiddenError,
    GoneError,
    Listing,
    NotFoundError,
    UnavailableError,
    WatchEvent,
    whole,
)
from gpulease.providers.kubernetes.api.watch import Watched
from tests.helpers import wait_for_async


def pod(name, version, **more):
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": version}, **more}


class ScriptedClient:
    """Answers lists and watches from scripts; the last watch stays open."""

    def __init__(self, lists, watches):
        self.lists, self.watches = list(lists), list(watches)
        self.since: list[str] = []

    async def list_all(
        self, resource, namespace="", *, labels="", fields="", keep=whole, streamed=False
    ):
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        kept = [keep(each) for each in found.items]
        return Listing([each for each in kept if each is not None], found.version)

    async def watch(
        self, resource, namespace="", *, since, labels="", fields="", seconds=30
    ) -> AsyncIterator[WatchEvent]:
        self.since.append(since)
        if not self.watches:
            yield WatchEvent("OPENED")
            await asyncio.Event().wait()
        for each in self.watches.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each


OPENED = WatchEvent("OPENED")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.01)


@asynccontextmanager
async def watching(lists, watches, **options):
    client = ScriptedClient(lists, watches)
    moved = []
    watched = Watched(client, PODS, changed=lambda a, b: moved.append((a, b)), **options)
    task = asyncio.create_task(watched.run())
    try:
        yield client, watched, moved
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(watched):
    return sorted(name for _, name in watched.objects)


async def test_it_lists_then_follows_what_changes():
    events = [
        OPENED,
        WatchEvent("ADDED", pod("b", "6")),
        WatchEvent("MODIFIED", pod("b", "7", x=1)),
        WatchEvent("DELETED", pod("a", "8")),
        WatchEvent("BOOKMARK", pod("", "20")),
    ]
    async with watching([Listing([pod("a", "4")], "5")], [events]) as (client, watched, moved):
        await watched.synced()
        await wait_for_async(lambda: len(client.since) == 2)
        assert names(watched) == ["b"]
        assert watched.objects["ns", "b"]["x"] == 1
        assert client.since == ["5", "20"], "a watch that ended goes on from the bookmark"
        assert watched.problem == ""
        assert watched.lists == 1
    assert [(a is None, b is None) for a, b in moved] == [
        (True, False), (True, False), (False, False), (False, True),
    ]  # fmt: skip


async def test_a_cut_goes_on_from_the_last_version_and_is_a_problem_meanwhile():
    problems = []
    cut = [OPENED, WatchEvent("ADDED", pod("b", "6")), UnavailableError("cut")]
    away = [UnavailableError("away")]
    async with watching([Listing([], "5")], [cut, away]) as (client, watched, _):
        await watched.synced()
        await wait_for_async(
            lambda: watched.problem and problems.append(watched.problem) is None, 10
        )
        await wait_for_async(lambda: len(client.since) == 3 and not watched.problem)
        assert client.since == ["5", "6", "6"]
        assert watched.lists == 1
        assert names(watched) == ["b"]
    assert "pods: " in problems[0]


@pytest.mark.parametrize("where", ["in the stream", "at once"])
async def test_a_version_that_is_too_old_lists_anew_and_tells_what_is_gone(where):
    gone = [GoneError("too old")] if where == "at once" else [OPENED, GoneError("too old")]
    lists = [Listing([pod("a", "4")], "5"), Listing([pod("c", "30")], "31")]
    async with watching(lists, [gone]) as (client, watched, moved):
        await wait_for_async(lambda: len(client.since) == 2)
        assert client.since == ["5", "31"]
        assert names(watched) == ["c"]
        assert watched.problem == ""
    assert [(a and a["metadata"]["name"], b and b["metadata"]["name"]) for a, b in moved] == [
        (None, "a"), ("a", None), (None, "c"),
    ]  # fmt: skip


async def test_it_is_not_synced_before_a_list_succeeded():
    lists = [UnavailableError("away"), ForbiddenError("pods is forbidden"), Listing([], "5")]
    async with watching(lists, []) as (_, watched, _moved):
        assert watched.problem == "not listed yet"
        assert not watched._synced.is_set()
        await asyncio.wait_for(watched.synced(), 10)
        await wait_for_async(lambda: not watched.problem)


async def test_a_collection_that_may_be_missing_is_empty_without():
    client = ScriptedClient([NotFoundError("no such thing")] * 5, [])
    watched = Watched(client, RESOURCE_SLICES, optional=True)
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced(), 10)
    assert (watched.objects, watched.problem) == ({}, "")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_after_many_failures_everything_is_listed_anew():
    failures = [[UnavailableError("away")]] * module.LIST_ANEW
    lists = [Listing([pod("a", "4")], "5"), Listing([], "9")]
    async with watching(lists, failures) as (client, watched, _):
        await wait_for_async(lambda: watched.lists == 2)
        await wait_for_async(lambda: client.since[-1] == "9", 10)
        assert names(watched) == []


async def test_what_is_not_kept_is_not_there():
    events = [OPENED, WatchEvent("MODIFIED", pod("a", "6", phase="Done"))]
    options = {"keep": lambda m: None if m.get("phase") == "Done" else m}
    async with watching([Listing([pod("a", "4")], "5")], [events], **options) as (
        _,
        watched,
        moved,
    ):
        await wait_for_async(lambda: len(moved) == 2)
        assert names(watched) == []


async def test_a_server_that_says_when_it_is_back_is_asked_then(monkeypatch):
    wishes = []

    def pause(_, at_least=0.0):
        wishes.append(at_least)
        return 0.0

    monkeypatch.setattr(BackOff, "pause", pause)
    away = UnavailableError("away", retry_after=60.0)
    watched = Watched(ScriptedClient([away, Listing([pod("a", "4")], "5")], []), PODS)
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced(), 10)
    assert names(watched) == ["a"]
    assert wishes[0] == 60.0, "the server knows best"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
