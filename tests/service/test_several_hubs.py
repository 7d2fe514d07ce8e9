"""Several hubs on one pool of GPUs: their people are apart, and none waits for another hub."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.web import Application, create_signed_value

from gpulease.errors import GPULeaseError
from gpulease.service.settings.reading import FurtherHub
from tests.helpers import wait_for_async
from tests.service import kit
from tests.service.kit import Server, Site, active_lease, connect

PREFIX = "/campus/services/gpulease-lab2/"
LAB_TOKEN = "the-service's-token-at-the-lab"
SHARES = """\
pools: {simulated-gpu: {evidence: process}}
classes: {gpu: {pool: simulated-gpu, price: 1}}
limits: {leases_per_user: 4}
time_outs: {warm_up: 0, idle: 1h, claim: 1h, minimum_runtime: 0}
projects:
  lab2: {pools: {simulated-gpu: {limit: 1}}}
  lab2-course: {parent: lab2, group: lab2/cs101}
  lab2-others: {parent: lab2, group: lab2/}
  home: {everyone: true}
"""


@pytest.fixture
async def lab() -> AsyncIterator[kit.Hub]:
    """A second hub; a namesake of the first one's student is there."""
    async with kit.hub_api() as found:
        found.service, found.own_token = "gpulease-lab2", LAB_TOKEN
        found.user("stu", "", groups=("cs101",))
        found.user("uma", "")
        yield found


Start = Callable[..., AbstractAsyncContextManager[Site]]


def further(lab: kit.Hub, **changed: Any) -> tuple[FurtherHub, ...]:
    return (FurtherHub(**{"name": "lab2", "api_url": lab.url, "token": LAB_TOKEN,
                          "prefix": PREFIX, **changed}),)  # fmt: skip


@pytest.fixture
async def home(run: Start, lab: kit.Hub) -> AsyncIterator[Site]:
    """The service as the first hub's people reach it."""
    async with run(hubs=further(lab), gpus=4) as found:
        yield found


def at_lab(home: Site, lab: kit.Hub) -> Site:
    """The same service as the second hub's people reach it."""
    return Site(lab, home.service, PREFIX)


@pytest.fixture
def away(home: Site, lab: kit.Hub) -> Site:
    return at_lab(home, lab)


async def refused(work: Any) -> GPULeaseError:
    with pytest.raises(GPULeaseError) as found:
        await work
    return found.value


async def test_namesakes_of_two_hubs_are_two_people(home: Site, away: Site) -> None:
    ours, channel, _ = await active_lease(home)
    theirs, other, _ = await active_lease(away)
    leases = home.service.services.ledger.leases
    assert [leases[each["id"]].user for each in (ours, theirs)] == ["stu", "lab2/stu"]
    for site, own, foreign in ((home, ours, theirs), (away, theirs, ours)):
        for token in (site.hub.server_token("stu"), site.hub.page_token("stu")):
            client = site.client(token)
            for state in ("live", ""):
                assert [each["id"] for each in await client.leases(state=state)] == [own["id"]]
            for method, path in (
                ("GET", ""),
                ("DELETE", ""),
                ("POST", "/keep"),
                ("GET", "/events"),
            ):
                error = await refused(client.call(method, f"leases/{foreign['id']}{path}"))
                assert (error.reason, error.status) == ("no_such_lease", 404)
        server = site.hub.server_token("stu")
        assert (await refused(connect(site, server, foreign["id"]))).reason == "no_such_lease"
        assert (await connect(site, server, own["id"]))["lease_id"] == own["id"]
    assert channel.view(theirs["id"]) is None
    assert other.view(ours["id"]) is None
    page = await Server.join(away, away.hub.page_token("stu"))
    assert [each["id"] for each in page.of("snapshot")[0]["leases"]] == [theirs["id"]]


async def test_no_hub_is_shown_a_token_of_another(home: Site, away: Site) -> None:
    for site in (home, away):
        await active_lease(site)
        for token in (site.hub.page_token("eve"), site.hub.admin_token()):
            await site.client(token).call("GET", "me")

    def looked_at(hub: kit.Hub) -> bool:
        return "/hub/api/users/stu" in hub.asked

    await wait_for_async(lambda: looked_at(home.hub) and looked_at(away.hub), 30, "both are asked")
    assert home.hub.shown <= {*home.hub.tokens, kit.OWN_TOKEN}
    assert away.hub.shown <= {*away.hub.tokens, LAB_TOKEN}


async def test_a_token_counts_at_its_own_hubs_address_alone(home: Site, away: Site) -> None:
    for site, foreign in ((home, away.hub), (away, home.hub)):
        for token in (f"{foreign.server_token('stu')}-x", foreign.own_token):
            assert (await refused(site.client(token).ask({}))).status == 401
            with pytest.raises(HTTPClientError) as error:
                await Server.open(f"{site.url}api/events", Authorization=f"token {token}")
            assert error.value.code == 401


async def test_an_admin_of_a_further_hub_has_its_people_and_nothing_else(
    home: Site, away: Site
) -> None:
    ours, *_ = await active_lease(home)
    theirs, _, supervisor = await active_lease(away)
    boss = away.client(away.hub.admin_token())
    me = await boss.call("GET", "me")
    assert (me["name"], me["admin"], me["leads"], me["leads_all"]) == (
        "lab2/root", False, ["lab2/"], False,
    )  # fmt: skip
    assert [each["id"] for each in await boss.leases()] == [theirs["id"]]
    assert (await boss.call("GET", "usage"))["items"] == []
    for path in ("policy/versions", "audit", "devices", "incidents", f"leases/{theirs['id']}/why"):
        assert (await refused(boss.call("GET", path))).reason == "admins_only"
    text = (await home.client(home.hub.admin_token()).call("GET", "policy"))["text"]
    saved = boss.call("PUT", "policy", {"text": text, "base_version": 1})
    assert (await refused(saved)).reason == "admins_only"
    for user in ("stu", "lab2/uma"):
        assert (await refused(boss.ask({"user": user, "server": ""}))).reason == "not_yours"
    assert (await refused(boss.call("DELETE", f"leases/{ours['id']}"))).reason == "no_such_lease"
    await boss.call("DELETE", f"leases/{theirs['id']}", {"note": "the lab closes"})
    await supervisor.next("drain")
    await supervisor.say({"type": "drained", "result": "done"})
    ended = await away.lease(theirs["id"], "ended")
    assert ended.end_reason == "forced"
    assert home.service.services.ledger.leases[ours["id"]].state == "active"


async def test_what_holds_for_all_groups_of_the_first_hub_does_not_reach_another(
    home: Site, away: Site
) -> None:
    ours, *_ = await active_lease(home)
    theirs, *_ = await active_lease(away)
    head = home.client(home.hub.token("dean", "custom:gpulease:reserve"))
    for state in ("live", ""):
        assert [each["id"] for each in await head.leases(state=state)] == [ours["id"]]
    error = await refused(head.call("DELETE", f"leases/{theirs['id']}"))
    assert error.reason == "no_such_lease"
    assert [x["name"] for x in (await head.call("GET", "groups"))["items"]] == [
        "/",
        "cs101",
        "cs102",
    ]
    error = await refused(head.call("GET", "groups/members?group=lab2/cs101"))
    assert error.reason == "not_your_group"
    admin = home.client(home.hub.admin_token())
    assert {each["id"] for each in await admin.leases()} == {ours["id"], theirs["id"]}


async def test_groups_are_asked_of_the_hub_that_has_them(home: Site, away: Site) -> None:
    boss = away.client(away.hub.admin_token())
    assert [x["name"] for x in (await boss.call("GET", "groups"))["items"]] == [
        "lab2/",
        "lab2/cs101",
    ]

    async def members(site: Site, group: str) -> Any:
        client = site.client(site.hub.admin_token())
        return (await client.call("GET", f"groups/members?group={group}"))["items"]

    assert await members(away, "lab2/cs101") == ["lab2/stu"]
    assert await members(away, "lab2/") == ["lab2/stu", "lab2/uma"]
    assert await members(home, "lab2/cs101") == ["lab2/stu"]
    assert await members(home, "cs101") == ["stu"]
    assert await members(home, "/") == ["eve", "stu"]


async def test_a_group_that_is_called_as_another_hubs_is_not_believed(
    home: Site, away: Site
) -> None:
    theirs, *_ = await active_lease(away)
    home.hub.user("mole", "", groups=("lab2/cs101", "lab2/", "cs101"))
    token = home.hub.token("mole", "custom:gpulease:reserve!group=lab2/cs101")
    me = await home.client(token).call("GET", "me")
    assert (me["groups"], me["leads"]) == (["/", "cs101"], [])
    assert await home.client(token).leases() == []
    assert (await refused(home.client(token).call("GET", f"leases/{theirs['id']}"))).status == 404


async def test_who_is_called_as_another_hubs_user_is_not_let_in(home: Site, away: Site) -> None:
    for site, name in ((home, "lab2/stu"), (away, "x/y")):
        error = await refused(site.client(site.hub.page_token(name)).call("GET", "me"))
        assert (error.reason, error.status) == ("bad_name", 403)


async def test_a_hub_has_a_quota_for_all_of_its_people(
    run: Start, lab: kit.Hub, tmp_path: Path
) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(SHARES, encoding="utf-8")
    async with run(hubs=further(lab), gpus=4, first_policy_file=file) as home:
        away = at_lab(home, lab)
        theirs, _, supervisor = await active_lease(away)
        assert theirs["project"] == "lab2-course"
        waiting = await away.client(lab.server_token("uma")).ask({})
        assert waiting["project"] == "lab2-others"
        await wait_for_async(
            lambda: home.service.services.ledger.leases[waiting["id"]].reason == "project_limit",
            30, "the other one waits for the share of the hub",
        )  # fmt: skip
        for user in ("stu", "eve"):
            ours, *_ = await active_lease(home, user)
            assert ours["project"] == "home"
        admin = home.client(home.hub.admin_token())
        lab.user("ann", "")
        for_them = await admin.ask({"user": "lab2/ann", "server": ""})
        assert (for_them["user"], for_them["project"]) == ("lab2/ann", "lab2-others")
        await away.client(lab.server_token("stu")).call("DELETE", f"leases/{theirs['id']}", {})
        await supervisor.next("drain")
        await supervisor.say({"type": "drained", "result": "done"})
        await away.lease(waiting["id"], "starting")


async def test_a_hub_that_is_away_stops_nobody_of_another(home: Site, away: Site) -> None:
    ours, *_ = await active_lease(home)
    theirs, channel, _ = await active_lease(away)
    services = home.service.services
    away.hub.down = True
    await wait_for_async(lambda: services.health()["hubs"]["lab2"] != "ok", 30, "it is noticed")
    found = services.health()
    assert (found["hub"], found["status"]) == ("ok", "degraded")
    assert found["alerts"] == ["hub"]
    assert "Hub lab2 does not answer" in str(services.alerts())
    await channel.close()
    home.hub.users["stu"]["servers"].clear()
    home.hub.user("ann", "")
    await home.lease(ours["id"], "ended")  # what the first hub says counts
    await active_lease(home, "ann")
    assert services.ledger.leases[theirs["id"]].state == "active"  # of the other nothing is known
    error = await refused(away.client(away.hub.page_token("uma")).ask({}))
    assert (error.reason, error.status) == ("hub_unreachable", 502)
    away.hub.down = False
    await wait_for_async(lambda: services.health()["hubs"]["lab2"] == "ok", 30, "it is back")
    away.hub.users["stu"]["servers"].clear()
    assert (await away.lease(theirs["id"], "ended")).end_reason == "server_gone"


async def test_the_first_hub_may_be_away_as_well(home: Site, away: Site) -> None:
    theirs, *_ = await active_lease(away)
    home.hub.down = True
    services = home.service.services
    await wait_for_async(lambda: services.health()["hub"] != "ok", 30, "it is noticed")
    assert services.health()["hubs"] == {"lab2": "ok"}
    away.hub.users["stu"]["servers"].clear()
    await away.lease(theirs["id"], "ended")


async def test_nobody_waits_for_a_hub_that_does_not_answer(home: Site, away: Site) -> None:
    ours, *_ = await active_lease(home)
    services = home.service.services
    away.hub.down = True
    await wait_for_async(lambda: services.health()["hubs"]["lab2"] != "ok", 30, "it is noticed")
    away.hub.down, away.hub.answer_seconds = False, 3600.0  # it takes what it is asked, for ever
    asked = len(away.hub.asked)
    await wait_for_async(lambda: len(away.hub.asked) > asked, 30, "it is asked again")
    home.hub.users["stu"]["servers"].clear()
    home.hub.asked.clear()
    await home.lease(ours["id"], "ended", 8)  # less than a call's time-out
    assert services.health()["hubs"]["lab2"] != "ok"
    away.hub.answer_seconds = 0.0


async def test_a_busy_server_is_reported_to_its_own_hub(home: Site, away: Site) -> None:
    *_, supervisor = await active_lease(away)

    async def told() -> bool:
        await supervisor.live(use=1.0, cells=1)
        return bool(away.hub.activity)

    await wait_for_async(told, 30, "its hub is told")
    assert away.hub.activity[0][0] == "stu"
    assert not home.hub.activity


def lesson(**more: Any) -> dict[str, Any]:
    day = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()
    return {
        "name": "gpu lab", "group": "lab2/cs101", "gpu_class": "gpu", "seats": 1,
        "start": f"{day}T14:00", "end": f"{day}T16:00", "zone": "UTC", **more,
    }  # fmt: skip


async def test_who_teaches_reserves_for_people_of_their_own_hub(home: Site, away: Site) -> None:
    teacher = away.client(
        away.hub.token("ines", "custom:gpulease:reserve!group=cs101", "custom:gpulease:request")
    )
    offered = (await teacher.call("GET", "classes"))["items"][0]["name"]
    for people in ({"named": ["stu"]}, {"managers": ["lab2/uma", "dean"]},
                   {"extra_time": {"stu": "10m"}}):  # fmt: skip
        body = lesson(gpu_class=offered, **people)
        for path, sent in (("", body), ("/check", {"reservations": [body]})):
            error = await refused(teacher.call("POST", f"reservations{path}", sent))
            assert (error.reason, error.status) == ("not_your_hub", 403)
    error = await refused(
        teacher.call("POST", "reservations", lesson(gpu_class=offered, group="cs101"))
    )
    assert error.reason == "may_not_reserve"
    made = await teacher.call("POST", "reservations", lesson(gpu_class=offered, named=["lab2/stu"]))
    path = f"reservations/{made['id']}"
    assert (await refused(teacher.call("PATCH", path, {"named": ["stu"]}))).reason == "not_your_hub"
    namesake = home.client(home.hub.page_token("stu"))
    assert (await refused(namesake.call("GET", path))).reason == "no_such_reservation"
    assert (await away.client(away.hub.page_token("stu")).call("GET", path))["id"] == made["id"]
    # An admin of the service may, and whom they named may stay.
    admin = home.client(home.hub.admin_token())
    await admin.call("PATCH", path, {"named": ["lab2/stu", "stu"]})
    await teacher.call("PATCH", path, {"named": ["lab2/stu", "stu"], "title": "More"})
    assert (await namesake.call("GET", path))["id"] == made["id"]


async def test_the_figures_of_the_service_are_the_first_hubs(home: Site, away: Site) -> None:
    async def code(site: Site) -> int:
        token = site.hub.metrics_token()
        response = await AsyncHTTPClient().fetch(
            f"{site.url}metrics", headers={"Authorization": f"token {token}"}, raise_error=False
        )
        return response.code

    assert (await code(home), await code(away)) == (200, 403)


async def test_runs_are_started_at_the_hub_of_who_submitted_them(home: Site, away: Site) -> None:
    client = away.client(away.hub.page_token("uma"))
    (mine,) = (await client.call("POST", "runs", {"notebook": "a.ipynb"}))["items"]
    await wait_for_async(lambda: bool(away.hub.started), 30, "its server is asked for")
    assert away.hub.started[0][0] == "uma"
    assert not home.hub.started
    name = away.hub.started[0][1]
    away.hub.users["uma"]["servers"][name] = {"name": name, "ready": True, "pending": None}
    token = away.hub.server_token("uma", name)
    report = {"boot": "b1", "state": "running", "cells": 1, "done": 0}
    await away.client(token).call("POST", f"runs/{mine['id']}/reports", report)
    away.hub.down = True
    services = home.service.services
    await wait_for_async(lambda: services.health()["hubs"]["lab2"] != "ok", 30, "it is noticed")
    ours = home.client(home.hub.page_token("eve"))
    (other,) = (await ours.call("POST", "runs", {"notebook": "b.ipynb"}))["items"]
    await wait_for_async(lambda: bool(home.hub.started), 30, "the first hub's goes on")
    run = services.runs._records.known[mine["id"]]
    assert (run.state, run.attempt) == ("running", 1)
    assert (await refused(ours.call("GET", f"runs/{mine['id']}"))).reason == "no_such_run"
    assert other["id"] != mine["id"]


async def test_a_page_of_a_further_hub_logs_in_there(home: Site, away: Site) -> None:
    async def get(site: Site, path: str, **headers: str) -> Any:
        return await AsyncHTTPClient().fetch(
            f"{site.url}{path}",
            headers={"Sec-Fetch-Mode": "navigate", **headers},
            raise_error=False, follow_redirects=False,
        )  # fmt: skip

    response = await get(away, "")
    target = urlsplit(response.headers["Location"])
    asked = parse_qs(target.query)
    assert (response.code, target.path) == (302, "/campus/hub/api/oauth2/authorize")
    assert asked["client_id"] == ["service-gpulease-lab2"]
    assert asked["redirect_uri"] == [f"{PREFIX}oauth_callback"]
    token = away.hub.page_token("stu")
    secret = _applications(home)[-1].settings["cookie_secret"]
    for name in ("service-gpulease", "service-gpulease-lab2"):  # signed as the first hub's are
        cookie = f"{name}={create_signed_value(secret, name, token).decode()}"
        assert (await get(away, "", Cookie=cookie)).code == 302
    lab_cookies = _applications(home)[0].settings["cookie_secret"]
    name = "service-gpulease-lab2"
    cookie = f"{name}={create_signed_value(lab_cookies, name, token).decode()}"
    text = (await get(away, "", Cookie=cookie)).body.decode()
    assert '<meta name="gpulease-user" content="lab2/stu">' in text
    assert '<meta name="gpulease-user-path" content="stu">' in text
    answer = await get(away, "api/health")
    assert json.loads(answer.body)["hubs"] == {"lab2": "ok"}
    described = json.loads((await get(away, "api/openapi.json")).body)
    assert described["servers"][0]["url"].startswith(PREFIX)


async def test_leases_of_a_hub_that_was_taken_out_end(
    run: Start, lab: kit.Hub, hub: kit.Hub
) -> None:
    async with run(hubs=further(lab)) as home:
        theirs, *_ = await active_lease(at_lab(home, lab))
    async with run() as home:
        assert (await home.lease(theirs["id"], "ended")).end_reason == "server_gone"


async def test_two_hubs_with_one_token_are_refused(run: Start, lab: kit.Hub) -> None:
    with pytest.raises(GPULeaseError, match="of another hub") as error:
        async with run(hubs=further(lab, token=kit.OWN_TOKEN)):
            pass
    assert kit.OWN_TOKEN not in str(error.value)


def _applications(home: Site) -> list[Application]:
    """Return what answers at the hubs' paths, the first one's last."""
    server = home.service._listeners[0]
    assert server is not None
    return [rule.target for rule in server.request_callback.rules]  # type: ignore[attr-defined]
