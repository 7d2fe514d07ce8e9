"""Deletes against a client that answers from a script; real ones stand in tests/cluster."""

import asyncio

import pytest

from gpulease.providers.kubernetes.api.client import ConflictError, NotFoundError, UnavailableError
from gpulease.providers.kubernetes.api.watch import ANSWERED_SECONDS, Deletes
from tests.helpers import wait_for_async


class ScriptedClient:
    """Answers each delete with the next of its answers, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.open = asyncio.Event()
        self.open.set()
        self.most = self.now = 0

    async def delete(self, resource, name, namespace="", *, uid="", grace=None):
        self.asked.append((namespace, name, uid))
        self.now += 1
        self.most = max(self.most, self.now)
        await self.open.wait()
        self.now -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


class World:
    def __init__(self, *answers):
        self.client, self.time = ScriptedClient(*answers), 0.0
        self.deletes = Deletes(self.client, clock=lambda: self.time)

    async def ask(self, uid="1"):
        self.deletes.begin({"metadata": {"name": f"p{uid}", "namespace": "ns", "uid": uid}})
        await self.rest()

    async def rest(self):
        await wait_for_async(lambda: not self.deletes._tasks)


ANSWERS = {
    "taken": None,
    "gone": NotFoundError("gone", status=404),
    "another": ConflictError("another", status=409),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_answered_delete_is_not_asked_again_before_the_watch_had_its_chance(answer):
    world = World(answer)
    for _ in range(5):
        await world.ask()
    assert world.client.asked == [("ns", "p1", "1")]
    await world.ask("2")
    assert len(world.client.asked) == 2, "another pod's delete is its own"


async def test_a_pod_that_still_stands_long_after_is_asked_again():
    world = World(None)
    await world.ask()
    world.time = ANSWERED_SECONDS - 1
    await world.ask("2")
    world.time = ANSWERED_SECONDS
    await world.ask()
    await world.ask("2")
    assert [uid for _, _, uid in world.client.asked] == ["1", "2", "1"]


async def test_a_delete_without_an_answer_is_asked_again():
    world = World(UnavailableError("away"), None)
    for _ in range(3):
        await world.ask()
    assert len(world.client.asked) == 2


async def test_a_pod_that_is_not_shown_is_deleted_by_its_name_once():
    world, lost = World(None), []
    for _ in range(3):
        world.deletes.begin_unseen(("ns", "p"), lambda: lost.append(1))
        await world.rest()
    assert world.client.asked == [("ns", "p", "")]
    assert not lost


async def test_whoever_waits_for_a_pod_that_never_shows_learns_that_it_is_gone():
    world, lost = World(NotFoundError("gone", status=404)), []
    world.deletes.begin_unseen(("ns", "p"), lambda: lost.append(1))
    await world.rest()
    assert lost == [1]


async def test_hundreds_at_once_do_not_flood_the_api_server():
    world = World(None)
    world.client.open.clear()
    for number in range(300):
        pod = {"metadata": {"name": f"p{number}", "namespace": "ns", "uid": str(number)}}
        world.deletes.begin(pod)
        world.deletes.begin(pod)
    await wait_for_async(lambda: world.client.now)
    world.client.open.set()
    await world.rest()
    assert len(world.client.asked) == 300
    assert world.client.most <= 16


async def test_closing_lets_go_of_what_is_not_answered():
    world = World(None)
    world.client.open.clear()
    world.deletes.begin({"metadata": {"name": "p", "namespace": "ns", "uid": "1"}})
    await wait_for_async(lambda: world.client.now)
    await world.deletes.close()
    assert not world.deletes._tasks
