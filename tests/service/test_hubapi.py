"""The hub's API as the service uses it: few users one by one, many by the paged list."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from jupyterhub.services.auth import HubOAuth
from jupyterhub.utils import make_ssl_context

from gpulease.service.hubs.api import HubAPI, HubServer, HubUnreachableError
from gpulease.service.hubs.auth import ServiceOAuth
from tests.helpers import wait_for_async
from tests.service.kit import Hub, hub_api


@pytest.mark.parametrize("count", [3, 450])
async def test_running_servers_of_few_and_of_many(hub: Hub, count: int) -> None:
    for number in range(count):
        hub.user(f"user-{number}", "", "second", groups=("cs", "bio"))
    api = HubAPI(hub.url, "t")
    users = [f"user-{number}" for number in range(count)] + ["nobody"]
    found = await api.running(users)
    assert set(found) == set(users)
    assert found["nobody"] == {}
    assert all(set(found[user]) == {"", "second"} for user in users[:-1])
    assert {api.groups_of(user) for user in users[:-1]} == {("bio", "cs")}


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


async def test_what_was_seen_is_for_where_a_gpu_goes_and_for_a_while(hub: Hub) -> None:
    now = [0.0]
    api = HubAPI(hub.url, "t", cache_seconds=5, clock=lambda: now[0])
    hub.user("stu", "")
    assert api.seen("stu") == {}, "nobody has looked yet"
    await api.servers("stu")
    now[0] = 29
    assert api.seen("stu")[""].ready
    asked = len(hub.asked)
    assert await api.server_active("stu", ""), "but whose a token is, is asked"
    assert len(hub.asked) == asked + 1
    now[0] = 29 + 31
    assert api.seen("stu") == {}


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


async def test_many_at_once_wait_for_their_turn_and_not_for_a_hub_that_is_away(hub: Hub) -> None:
    hub.answer_seconds = 0.2
    users = [f"user-{number}" for number in range(60)]
    for user in users:
        hub.user(user, "")
    api = HubAPI(hub.url, "t", timeout=1.0)  # less than all of them take together
    assert all(await asyncio.gather(*(api.server_active(user, "") for user in users)))
    assert not api.problem


# --- the hub's inner traffic encrypted: both sides show certificates of the hub's authorities


async def test_an_encrypted_hub_is_asked_with_the_services_certificate(
    authorities: dict[str, dict[str, str]],
) -> None:
    hubs, own, other = (authorities[name] for name in ("hub", "service", "other"))
    listening = make_ssl_context(
        hubs["key"], hubs["cert"], cafile=own["authority"], purpose=ssl.Purpose.CLIENT_AUTH
    )

    def tls(pair: dict[str, str], trusted: str) -> ssl.SSLContext:
        auth = ServiceOAuth(parent=None, keyfile=pair["key"], certfile=pair["cert"])
        auth.client_ca = trusted
        return make_ssl_context(auth.keyfile, auth.certfile, cafile=auth.client_ca)

    async with hub_api(listening) as hub:
        hub.user("stu", "")
        api = HubAPI(hub.url, "t", tls=tls(own, hubs["authority"]))
        assert await api.server_active("stu", "")
        # Without a certificate, with a stranger's, or trusting another authority: no answer.
        for wrong in (None, tls(other, hubs["authority"]), tls(own, other["authority"])):
            with pytest.raises(HubUnreachableError):
                await HubAPI(hub.url, "t", tls=wrong).servers("stu")


async def test_guessed_tokens_keep_nobody_out_whom_the_hub_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More guesses than there are turns wait for a hub that takes its time over each."""
    guessed, over = [], asyncio.Event()

    async def hub(self: object, method: str, url: str, **options: Any) -> dict[str, str] | None:
        token = options["headers"]["Authorization"]
        if "guess" not in token:
            return {"name": token}
        guessed.append(token)
        await over.wait()
        return None

    monkeypatch.setattr(HubOAuth, "_api_request", hub)
    auth = ServiceOAuth(parent=None, api_token="own", api_url="http://127.0.0.1:1/hub/api")

    async def ask(token: str) -> Any:
        return await auth.user_for_token(token, use_cache=False, sync=False)

    assert await ask("ann")
    guesses = [asyncio.create_task(ask(f"guess {number}")) for number in range(100)]
    await wait_for_async(lambda: guessed, 30, "the hub to be asked about guesses")
    async with asyncio.timeout(30):
        assert await ask("ann")
    over.set()
    assert await asyncio.gather(*guesses) == [None] * 100
    assert len(guessed) == 100


@pytest.mark.parametrize("at_once", [1, 10, 300])
async def test_what_many_ask_is_asked_once_for_all(hub: Hub, at_once: int) -> None:
    now = [0.0]
    users = [f"user-{number}" for number in range(300)]
    for user in users:
        hub.user(user, "")
    api = HubAPI(hub.url, "t", clock=lambda: now[0])
    for first in range(0, 300, at_once):
        now[0] += 4.0 / 300 * at_once
        some = users[first : first + at_once]
        assert all(await asyncio.gather(*(api.server_active(user, "") for user in some)))
    singles = [path for path in hub.asked if path != "/hub/api/users"]
    assert len(hub.asked) - len(singles) <= 4, "two pages, or twice that"
    assert len(singles) <= 10


async def test_a_list_says_of_nobody_that_their_server_is_gone(hub: Hub) -> None:
    for number in range(30):
        hub.user(f"user-{number}", "")
    api = HubAPI(hub.url, "t")
    for number in range(20):
        assert await api.server_active(f"user-{number}", "")
    hub.user("late", "")  # since the list
    assert await api.server_active("late", "")
    hub.user("user-25")
    assert (await api.running(["user-25"]))["user-25"] == {}
    assert not await api.server_active("user-25", ""), "what was looked at since counts"


async def test_each_of_many_hears_that_the_hub_is_away(hub: Hub) -> None:
    api = HubAPI(hub.url, "t")
    users = [f"user-{number}" for number in range(50)]
    for user in users[:10]:
        await api.servers(user)
    hub.down = True
    found = await asyncio.gather(*(api.servers(user) for user in users), return_exceptions=True)
    assert [type(each) for each in found] == [dict] * 10 + [HubUnreachableError] * 40
    hub.down = False
    assert await api.servers("user-40") == {}
