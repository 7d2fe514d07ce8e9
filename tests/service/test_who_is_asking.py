"""Who is asking: a server counts only if one server's own token proves it and the hub agrees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from gpulease.errors import GPULeaseError
from gpulease.service.hubs import auth
from gpulease.service.hubs.auth import asker_of, named_server
from gpulease.service.routes import log_in_of
from gpulease.service.settings.reading import FurtherHub
from tests.helpers import wait_for_async
from tests.service.kit import ACCESS, Server, Site, active_lease, connect, z85_key

OWN = "access:servers!server=stu/"
REQUEST = "custom:gpulease:request"


NAMED = [
    ([OWN, REQUEST], ""),
    ([OWN, f"{REQUEST}!user=stu"], ""),
    (["access:servers!server=stu/lab-2", REQUEST], "lab-2"),
    ([OWN, "access:servers!server=stu/second", REQUEST], None),
    ([OWN, "access:servers!user=stu", REQUEST], None),
    ([OWN, "access:servers", REQUEST], None),
    (["access:servers!user=stu", REQUEST], None),
    (["access:servers", REQUEST], None),
    (["access:servers!server=ann/", REQUEST], None),
    (["access:servers!server=stu", REQUEST], None),
    (["access:servers!group=cs101", REQUEST], None),
    ([OWN, f"{REQUEST}!user=ann"], None),
    ([OWN, f"{REQUEST}!group=cs101"], None),
    ([OWN], None),
    ([REQUEST], None),
]


def test_which_tokens_name_a_server() -> None:
    for scopes, server in NAMED:
        asker = asker_of({"name": "stu", "kind": "user", "scopes": scopes, "groups": []})
        assert asker.claimed_server == server


def test_a_services_token_names_no_server() -> None:
    assert (
        named_server("gpulease", "service", frozenset({"access:servers!server=gpulease/"}))[0]
        is None
    )


def test_groups_of_filtered_scopes_are_read_exactly() -> None:
    scopes = ["custom:gpulease:reserve!group=cs101", "custom:gpulease:reserve!group=a b"]
    asker = asker_of({"name": "teacher", "kind": "user", "scopes": scopes, "groups": []})
    assert asker.leads == ("a b", "cs101")
    assert asker.may_see("stu", ("cs101",))
    assert not asker.may_see("eve", ("cs102",))
    assert not asker.may_change("stu")
    assert not asker.admin


async def refused(work) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as found:
        await work
    return found.value


async def test_no_token_but_its_own_servers_connects_to_a_lease(site: Site, hub) -> None:
    hub.user("stu", "", "second")
    lease, channel, supervisor = await active_lease(site)
    invented = hub.server_token("stu", "invented")
    error = await refused(site.client(invented).ask({}))
    assert (error.reason, error.status) == ("no_server", 403)
    shared = hub.token("eve", "access:servers!server=stu/", f"{REQUEST}!user=eve")
    both = hub.token("stu", OWN, "access:servers!server=stu/second", REQUEST)
    wide = hub.token("stu", "access:servers!user=stu", f"{REQUEST}!user=stu")
    for token in (invented, shared, both, wide):
        error = await refused(connect(site, token, lease["id"]))
        assert (error.reason, error.status) == ("no_server", 403)
    client = site.client(wide)
    assert [each["id"] for each in await client.leases()] == [lease["id"]]
    assert (await client.ask({"server": ""}))["id"] == lease["id"]
    second = hub.server_token("stu", "second")
    assert (await refused(connect(site, second, lease["id"]))).reason == "no_such_lease"
    await supervisor.close()
    await channel.close()


async def test_a_stopping_servers_token_cannot_connect(site: Site, hub) -> None:
    token = hub.server_token("stu")
    hub.users["stu"]["servers"][""]["pending"] = "stop"
    assert (await refused(site.client(token).ask({}))).reason == "no_server"


async def test_a_missing_or_foreign_token_is_refused(site: Site) -> None:
    for token in ["", "nobody-knows-this-token"]:
        error = await refused(site.client(token).ask({}))
        assert (error.reason, error.status) == ("not_logged_in", 401)


async def test_a_token_from_before_the_installation_says_what_to_do(site: Site, hub) -> None:
    hub.tokens["old"] = {"name": "stu", "kind": "user", "groups": [], "scopes": [OWN]}
    error = await refused(site.client("old").ask({}))
    assert error.reason == "no_access"
    assert "Restart your server once" in error.next_step
    hub.tokens["half"] = {"name": "stu", "kind": "user", "groups": [], "scopes": [OWN, ACCESS]}
    error = await refused(site.client("half").ask({}))
    assert error.reason == "may_not_ask"
    assert "Restart your server once" in error.next_step


async def test_a_student_can_neither_see_nor_end_anothers_lease(site: Site, hub) -> None:
    lease, channel, supervisor = await active_lease(site)
    eve = site.client(hub.page_token("eve"))
    assert await eve.leases(state="") == []
    for work in (eve.lease(lease["id"]), eve.end(lease["id"]), eve.keep(lease["id"])):
        assert (await refused(work)).status == 404
    watching = await Server.join(site, hub.page_token("eve"))
    await site.client(hub.server_token("stu")).end(lease["id"])
    await supervisor.next("drain")
    assert watching.view(lease["id"]) is None
    for peer in (watching, channel, supervisor):
        await peer.close()


async def test_an_instructor_sees_the_own_groups_leases_and_keeps_none(site: Site, hub) -> None:
    hub.user("teacher", "")
    mine, channel, supervisor = await active_lease(site)
    other = await site.client(hub.server_token("eve")).ask({})
    teacher = hub.token("teacher", "custom:gpulease:reserve!group=cs101", f"{REQUEST}!user=teacher")
    client = site.client(teacher)
    assert [each["id"] for each in await client.leases()] == [mine["id"]]
    assert (await refused(client.lease(other["id"]))).status == 404
    error = await refused(client.keep(mine["id"]))
    assert (error.reason, error.status) == ("not_yours", 403)
    eves = site.client(hub.token("eve", "custom:gpulease:reserve!group=cs102"))
    assert (await refused(eves.end(mine["id"]))).status == 404
    await supervisor.close()
    await channel.close()


async def test_an_admin_ends_a_lease_with_a_note_that_its_holder_reads(site: Site, hub) -> None:
    lease, channel, supervisor = await active_lease(site)
    ended = await site.client(hub.admin_token()).end(lease["id"], "the room closes")
    assert ended["state"] == "draining"
    await supervisor.next("drain")
    await supervisor.say({"type": "drained", "result": "done"})
    record = await site.lease(lease["id"], "ended")
    assert record.end_reason == "forced"
    shown = await site.client(hub.page_token("stu")).lease(lease["id"])
    assert shown["end"]["note"] == "the room closes"
    await channel.close()


async def test_a_student_cannot_ask_in_anothers_name(site: Site, hub) -> None:
    error = await refused(site.client(hub.page_token("eve")).ask({"user": "stu", "server": ""}))
    assert (error.reason, error.status) == ("not_yours", 403)
    asked = await site.client(hub.admin_token()).ask({"user": "stu", "server": ""})
    assert asked["user"] == "stu"


async def test_a_supervisor_needs_its_own_leases_token(site: Site, hub) -> None:
    from tornado.httpclient import HTTPClientError

    from tests.service.kit import Peer, Supervisor

    lease, channel, supervisor = await active_lease(site)
    other, second, _ = await active_lease(site, "eve")
    token = (await second.grant(other["id"]))["token"]
    url = f"{site.url}api/leases/{lease['id']}/supervisor"
    for credential in (f"Bearer {token}", "Bearer x", f"token {hub.server_token('stu')}", ""):
        with pytest.raises(HTTPClientError) as wrong:
            await Peer.open(url, Authorization=credential)
        assert wrong.value.code == (403 if credential.startswith("Bearer ") else 401)
    assert isinstance(supervisor, Supervisor)
    assert z85_key() != z85_key()
    for peer in (channel, second, supervisor):
        await peer.close()


async def test_a_service_is_never_the_user_of_its_name(site: Site) -> None:
    hub = site.hub
    service = site.client(hub.token("stu", f"{REQUEST}", "custom:gpulease:admin", kind="service"))
    quiet = site.client(hub.token("stu", kind="service"))
    person = site.client(hub.server_token("stu"))
    lease = await person.ask({}, key="same")
    refusal = await refused(service.ask({}, key="same"))
    assert refusal.reason == "no_server", "neither stu's server nor what stu's key means"
    asked = await service.ask({"user": "stu"}, key="same")
    assert asked["id"] == lease["id"], "by name an admin's service may ask for anybody"
    for path in ("leases", "leases?state=live"):
        assert (await person.call("GET", path))["total"] == 1
        assert (await quiet.call("GET", path))["total"] == 0
    assert (await quiet.call("GET", "servers"))["items"] == []
    assert (await refused(quiet.call("GET", f"leases/{lease['id']}"))).reason == "no_such_lease"


class SlowHub(RequestHandler):
    """Says whose a token is once it may, and counts who waits."""

    def initialize(self, waiting: list[str], most: list[int], answers: asyncio.Event) -> None:
        self._waiting, self._most, self._answers = waiting, most, answers

    async def get(self) -> None:
        self._waiting.append("")
        self._most.append(len(self._waiting))
        await self._answers.wait()
        self._waiting.pop()
        self.finish({"name": "stu", "kind": "user", "scopes": []})


async def test_thousands_who_come_back_at_once_do_not_all_ask_the_hub_at_once() -> None:
    """Each of them is recognised in its turn; the hub was drowned, and nobody was."""
    waiting: list[str] = []
    most: list[int] = []
    answers = asyncio.Event()
    options = {"waiting": waiting, "most": most, "answers": answers}
    server = HTTPServer(Application([("/hub/api/user", SlowHub, options)]))
    listening, port = bind_unused_port()
    server.add_socket(listening)
    api = f"http://127.0.0.1:{port}/hub/api"
    log_in = log_in_of(FurtherHub("lab2", api, "own", "/services/gpulease-lab2/"))
    asked = [
        asyncio.ensure_future(log_in.user_for_token(f"token {number}", sync=False))
        for number in range(4 * auth._AT_ONCE)
    ]
    await wait_for_async(lambda: len(waiting) >= auth._AT_ONCE, 30, "the first to have asked")
    answers.set()
    found = await asyncio.gather(*asked)
    assert [each["name"] for each in found] == ["stu"] * len(asked)
    assert max(most) == auth._AT_ONCE
    server.stop()
    await server.close_all_connections()


async def test_a_service_that_ends_keeps_nothing_open(hub, run):
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    async with run() as site:
        await site.client(hub.token("stu", OWN, REQUEST)).leases()
    # What looked names up ends in a thread of its own.
    await wait_for_async(lambda: opened() <= before, seconds=10)
