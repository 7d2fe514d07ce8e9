"""The hub's API as the service uses it: few users one by one, many by the paged list."""

from __future__ import annotations

import pytest

from gpulease.service.hubapi import HubAPI, HubServer, HubUnreachableError
from tests.service.kit import Hub


@pytest.mark.parametrize("count", [3, 450])
async def test_running_servers_of_few_and_of_many(hub: Hub, count: int) -> None:
    for number in range(count):
        hub.user(f"user-{number}", "", "second")
    api = HubAPI(hub.url, "t")
    users = [f"user-{number}" for number in range(count)] + ["nobody"]
    found = await api.running(users)
    assert set(found) == set(users)
    assert found["nobody"] == {}
    assert all(set(found[user]) == {"", "second"} for user in users[:-1])


@pytest.mark.parametrize(
    ("ready", "pending", "stopped", "active"),
    [
        (True, "", False, True),
        (False, "spawn", False, True),
        (True, "stop", False, False),
        (False, "", False, False),
        (False, "", True, False),
    ],
)
def test_which_servers_are_active(ready: bool, pending: str, stopped: bool, active: bool) -> None:
    assert HubServer("", ready, pending, stopped).active is active


async def test_an_answer_is_believed_for_a_while_but_absence_is_asked_again(hub: Hub) -> None:
    now = [0.0]
    api = HubAPI(hub.url, "t", cache_seconds=5, clock=lambda: now[0])
    hub.user("new")
    assert not await api.server_active("new", "")
    hub.user("new", "")
    assert await api.server_active("new", "")
    hub.user("new")
    assert await api.server_active("new", "")
    now[0] = 6
    assert not await api.server_active("new", "")


async def test_a_hub_that_is_away_says_nothing(hub: Hub) -> None:
    api = HubAPI(hub.url, "t")
    hub.down = True
    with pytest.raises(HubUnreachableError):
        await api.servers("stu")
    assert "503" in api.problem
    hub.down = False
    await api.servers("stu", fresh=True)
    assert api.problem == ""
    with pytest.raises(HubUnreachableError):
        await HubAPI("http://127.0.0.1:1/hub/api", "t").servers("stu")


async def test_names_are_quoted(hub: Hub) -> None:
    hub.user("a b@c", "")
    assert await HubAPI(hub.url, "t").server_active("a%20b%40c".replace("%20", " "), "") is False
