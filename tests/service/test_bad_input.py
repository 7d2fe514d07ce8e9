"""Bad input gets a problem with a reason, a sentence and a next step; nothing is changed by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import date
from itertools import product
from typing import Any

import pytest
import pytest_asyncio
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from gpulease.service.languages import catalogue
from gpulease.service.rest.sockets import SupervisorSocket
from gpulease.service.schemas import problems
from gpulease.texts import Text
from tests.service import kit
from tests.service.kit import Peer, Server, Site, active_lease, z85_key

POLICY = """\
pools: {simulated-gpu: {}}
classes: {gpu: {pool: simulated-gpu}}
limits: {changes_per_minute: 1000000}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quiet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """One service for all tests that change nothing."""
    path = tmp_path_factory.mktemp("quiet")
    policy = path / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        async with kit.hub_api() as hub:
            kit.set_environment(patch.setenv, hub)
            hub.user("stu", "", groups=("cs101",))
            async with kit.running(hub, path, first_policy_file=policy) as found:
                yield found


async def send(
    site: Site, token: str, method: str, path: str, body: str | bytes | None, **headers: str
) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(
        f"{site.url}api/{path}",
        method=method,
        body=body,
        headers={"Authorization": f"token {token}", "Content-Type": "application/json", **headers},
        raise_error=False,
        allow_nonstandard_methods=True,
        follow_redirects=False,
    )


def problem(response: HTTPResponse) -> dict[str, Any]:
    assert response.headers["Content-Type"] == "application/problem+json"
    found = json.loads(response.body)
    assert found["status"] == response.code
    assert found["title"]
    return found


BAD_ASKS = [
    ('{"gpu_class": "h200"}', 422, "unknown_class"),
    ('{"gpu_class": 7}', 422, "invalid_body"),
    ('{"count": 0}', 422, "invalid_body"),
    ('{"count": -1}', 422, "invalid_body"),
    ('{"count": 2}', 422, "bad_count"),
    ('{"count": 3}', 422, "bad_count"),
    ('{"count": 1000000}', 422, "invalid_body"),
    ('{"count": "1"}', 422, "invalid_body"),
    ('{"count": 1.5}', 422, "invalid_body"),
    ('{"count": true}', 422, "invalid_body"),
    ('{"seconds": 0}', 422, "invalid_body"),
    ('{"seconds": "30m"}', 422, "invalid_body"),
    ('{"seconds": 1e400}', 422, "invalid_body"),
    ('{"seconds": NaN}', 422, "invalid_body"),
    ('{"origin": "elsewhere"}', 422, "invalid_body"),
    ('{"klass": "a"}', 422, "invalid_body"),
    ("[]", 422, "invalid_body"),
    ("null", 422, "invalid_body"),
    ('{"count": 1', 400, "malformed_json"),
    ("\x00", 400, "malformed_json"),
    ("[" * 100_000, 413, "body_too_large"),
    ("[" * 50_000, 400, "malformed_json"),
    ('{"gpu_class": "\\ud800"}', 400, "malformed_json"),
]


@pytest.mark.asyncio(loop_scope="module")
async def test_an_ask_that_is_none(quiet: Site) -> None:
    for body, status, reason in BAD_ASKS:
        token = quiet.hub.server_token("stu")
        response = await send(quiet, token, "POST", "leases", body)
        assert (response.code, problem(response)["reason"]) == (status, reason)
        assert quiet.service.services.ledger.leases == {}


@pytest.mark.asyncio(loop_scope="module")
async def test_bytes_that_are_no_text(quiet: Site) -> None:
    response = await send(quiet, quiet.hub.server_token("stu"), "POST", "leases", b"\xff\xfe{")
    assert problem(response)["reason"] == "malformed_json"


async def test_an_unknown_class_names_those_on_offer(site: Site) -> None:
    token = site.hub.server_token("stu")
    found = problem(await send(site, token, "POST", "leases", '{"gpu_class": "simulated-gpus"}'))
    assert found["numbers"]["classes"] == ["simulated-gpu"]
    assert "Did you mean" in found["next_step"]


@pytest.mark.asyncio(loop_scope="module")
async def test_an_oversize_body_is_refused(quiet: Site) -> None:
    token = quiet.hub.server_token("stu")
    body = json.dumps({"gpu_class": "x" * 70_000})
    found = problem(await send(quiet, token, "POST", "leases", body))
    assert (found["reason"], found["status"]) == ("body_too_large", 413)
    assert found["numbers"]["max"] == 65536


@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_that_is_too_long_is_refused_and_never_cut(quiet: Site) -> None:
    token = quiet.hub.server_token("stu")
    long = {"Idempotency-Key": "k" * 201}
    response = await send(quiet, token, "POST", "leases", "{}", **long)
    assert (response.code, problem(response)["reason"]) == (422, "invalid_key")
    assert quiet.service.services.ledger.leases == {}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_form_is_not_json(quiet: Site) -> None:
    token = quiet.hub.server_token("stu")
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await send(quiet, token, "POST", "leases", "count=1", **kind)
    assert (response.code, problem(response)["reason"]) == (415, "not_json")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_method_that_is_not_there_names_those_that_are(quiet: Site) -> None:
    token = quiet.hub.server_token("stu")
    response = await send(quiet, token, "PATCH", "leases", "{}")
    assert response.code == 405
    assert response.headers["Allow"] == "GET, POST, DELETE"
    assert problem(response)["reason"] == "method_not_allowed"


@pytest.mark.asyncio(loop_scope="module")
async def test_an_address_that_is_not_there(quiet: Site) -> None:
    for path in ["nothing", "leases/x/y/z", "leases/..%2f..", "leases/" + "x" * 99]:
        response = await send(quiet, quiet.hub.server_token("stu"), "GET", path, None)
        assert (response.code, problem(response)["reason"]) == (404, "not_found")


BAD_QUERIES = [
    "mine=yes",
    "stat=live",
    "limit=1&limit=2",
    "offset=%2B1",
    "state=gone",
    "offset=-1",
    "offset=x",
    "limit=100000",
    "limit=1.5",
    "offset=9e9",
    "offset=%205",
    "state=%1Alive",
]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_page_of_a_list_that_is_none(quiet: Site) -> None:
    for query in BAD_QUERIES:
        response = await send(quiet, quiet.hub.server_token("stu"), "GET", f"leases?{query}", None)
        assert (response.code, problem(response)["reason"]) == (422, "invalid_query")


BAD_KEYS = [
    {"client_key": "short", "kernel_id": "k"},
    {"client_key": "\u00e4" * 40, "kernel_id": "k"},
    {"client_key": " " * 40, "kernel_id": "k"},
    {"client_key": "x" * 40},
    {"client_key": "x" * 40, "kernel_id": ""},
]


async def test_a_key_that_is_none(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    token = site.hub.server_token("stu")
    path = f"leases/{lease['id']}/connections"
    for body in BAD_KEYS:
        response = await send(site, token, "POST", path, json.dumps(body))
        assert (response.code, problem(response)["reason"]) == (422, "invalid_body")
    assert not supervisor.of("admit")
    await supervisor.close()
    await channel.close()


async def test_connecting_a_lease_that_is_not_active(site: Site) -> None:
    token = site.hub.server_token("stu")
    lease = await site.client(token).ask({})
    body = json.dumps({"client_key": z85_key(), "kernel_id": "k"})
    response = await send(site, token, "POST", f"leases/{lease['id']}/connections", body)
    assert (response.code, problem(response)["reason"]) == (409, "not_active")


async def test_a_supervisor_that_never_says_hello_is_hung_up_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SupervisorSocket, "hello_seconds", 0.2)
    lease, channel, supervisor = await active_lease(site)
    grant = await channel.grant(lease["id"])
    url = f"{site.url}api/leases/{lease['id']}/supervisor"
    silent = await Peer.open(url, Authorization=f"Bearer {grant['token']}")
    await silent.say({"type": "bye"})  # says something, and not who it is
    await silent.closed.wait()
    assert not supervisor.closed.is_set(), "who said hello stays"
    await supervisor.close()
    await channel.close()


@pytest.mark.parametrize("said", ["no json", "[" * 5000])
async def test_a_supervisor_that_speaks_nonsense_is_hung_up_on(site: Site, said: str) -> None:
    _, channel, supervisor = await active_lease(site)
    await supervisor.say(said)
    await supervisor.closed.wait()
    await channel.close()


NO_MESSAGES = [
    {"type": "unheard-of"},
    {"type": "activity", "samples": [{"at": "yesterday"}]},
    {"type": "activity", "samples": [{"at": "yesterday", "cells": 1, "threads": 0,
     "processes": 0, "use": 0.5, "transfers": False}]},
    {"type": "activity", "samples": "many"},
    {"type": "drained", "result": "perhaps"},
    {"type": "admitted"},
    {"type": "drained"},
]  # fmt: skip


async def test_a_message_that_is_none_is_dropped_and_the_channel_stays(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    for said in NO_MESSAGES:
        await supervisor.say(said)
    await supervisor.live(use=0.5, cells=1)
    await site.client(site.hub.server_token("stu")).end(lease["id"])
    await supervisor.next("drain")
    assert not supervisor.closed.is_set()
    assert site.service.services.loop.problem == ""
    await supervisor.close()
    await channel.close()


async def test_a_report_about_another_servers_lease_counts_for_nothing(site: Site) -> None:
    lease, channel, supervisor = await active_lease(site)
    eve = await Server.join(site, site.hub.server_token("eve"))
    report = {"type": "supervisor", "lease_id": lease["id"], "attempt": 1, "state": "failed"}
    await eve.say({**report, "detail": "", "pids": []})
    await eve.say({"type": "kernels", "kernels": "all"})
    loop = site.service.services.loop
    seen = loop.rounds
    await supervisor.live()
    await site.lease(lease["id"], "active")
    assert loop.rounds >= seen
    for peer in (eve, channel, supervisor):
        await peer.close()


async def test_a_page_that_reports_is_hung_up_on(site: Site) -> None:
    page = await Server.join(site, site.hub.page_token("stu"))
    await page.say({"type": "kernels", "kernels": []})
    await page.closed.wait()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_channel_needs_an_upgrade(quiet: Site) -> None:
    response = await send(quiet, quiet.hub.page_token("stu"), "GET", "events", None)
    assert (response.code, problem(response)["reason"]) == (426, "upgrade_required")


@pytest.mark.asyncio(loop_scope="module")
async def test_events_need_a_log_in(quiet: Site) -> None:
    from tornado.httpclient import HTTPClientError

    with pytest.raises(HTTPClientError) as refused:
        await Peer.open(f"{quiet.url}api/events")
    assert refused.value.code == 401


METHODS = ("PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", ["events", "leases/x/supervisor", "health", "me", "leases"])
async def test_a_method_reaches_nothing_that_is_not_meant_for_it(quiet: Site, path: str) -> None:
    token = quiet.hub.page_token("stu")
    for method in METHODS:
        if path == "leases" and method in ("POST", "DELETE"):
            continue
        response = await send(quiet, token, method, path, None)
        assert response.code == 405, method
        assert method not in response.headers["Allow"].split(", ")


LAB = {
    "name": "lab",
    "group": "cs101",
    "gpu_class": "gpu",
    "seats": 1,
    "start": "2026-10-05T14:00",
    "end": "16:00",
    "zone": "UTC",
}


SAID = [
    ("leases", {"count": 0}, "count: it must be at least 1."),
    ("leases", {"count": "1"}, "count: it must be a whole number."),
    (
        "leases",
        {"gpu_clas": "a"},
        "gpu_clas: there is no such member. Did you mean 'gpu_class'?",
    ),
    ("leases", [], "The body: it must be an object."),
    (
        "reservations",
        {**LAB, "seat": 2},
        "seat: there is no such member. Did you mean 'seats'?",
    ),
    ("reservations", {**LAB, "contact": ["me"]}, "contact.0: it must be an e-mail address."),
    ("reservations", {**LAB, "title": "a\nb"}, "title: it must be one line."),
    ("reservations", {**LAB, "name": ""}, "name: it must not be empty."),
    ("reservations", {**LAB, "exam": "yes"}, "exam: it must be true or false."),
    ("reservations", {"name": "lab"}, "gpu_class: it is missing."),
    (
        "reservations/check",
        {"reservations": [LAB, {**LAB, "name": "b", "end": "4"}]},
        "reservations.1 (b).end: it must have at least 4 characters.",
    ),
    ("runs", {"notebook": "train.py"}, "notebook: it must be the path of a notebook (.ipynb)."),
    (
        "runs",
        {"notebook": "a.ipynb", "on_loss": "go"},
        "on_loss: it must be 'fail' or 'restart'.",
    ),
]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_wrong_is_said_in_words_for_people(quiet) -> None:
    for path, body, said in SAID:
        token = quiet.hub.token("prof", "custom:gpulease:reserve", "custom:gpulease:request")
        answer = await send(quiet, token, "POST", path, json.dumps(body))
        assert (answer.code, problem(answer)["detail"]) == (422, said)


SAID_IN = [
    ("de", "leases", {"count": 0}, "count: es muss mindestens 1 sein."),
    ("fr", "leases", {"count": 0}, "count\N{NO-BREAK SPACE}: il faut au moins 1."),
    ("de", "leases", [], "Der Inhalt der Anfrage: es muss ein Objekt sein."),
    (
        "de",
        "leases",
        {"gpu_clas": "a"},
        "gpu_clas: diese Angabe gibt es nicht. Meinten Sie „gpu_class“?",
    ),
    (
        "de",
        "runs",
        {"notebook": "a.ipynb", "on_loss": "go"},
        "on_loss: es muss 'fail' oder 'restart' sein.",
    ),
    (
        "fr",
        "reservations",
        {**LAB, "contact": ["me"]},
        "contact.0\N{NO-BREAK SPACE}: il faut une adresse électronique.",
    ),
]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_wrong_is_said_in_the_readers_language(quiet) -> None:
    for language, path, body, said in SAID_IN:
        token = quiet.hub.token("prof", "custom:gpulease:reserve", "custom:gpulease:request")
        headers = {"Accept-Language": language}
        answer = await send(quiet, token, "POST", path, json.dumps(body), **headers)
        found = problem(answer)
        assert (answer.code, found["detail"]) == (422, said)
        assert found["numbers"]["wrong"][0]["problem"] in said


BOUNDS = (2, 2.5, "2000-01-01", date(2000, 1, 1))


@pytest.mark.parametrize("language", ["de", "fr"])
def test_everything_that_can_be_wrong_is_in_every_language(language) -> None:
    for kind, bound in product(sorted(problems._WORDS), BOUNDS):
        ctx = {
            **dict.fromkeys(("gt", "ge", "lt", "le"), bound), "max_length": 2, "min_length": 2,
            "expected": "'a', 'b' or 'c'", "pattern": "^x$",
        }  # fmt: skip
        words = problems.problem_of({"type": kind, "ctx": ctx})
        assert isinstance(words, Text)
        assert words.known(catalogue(language))
        assert "{" not in words.told(catalogue(language))


SAID_OF_QUERIES = [
    ("since=2026-11-99", "since: it must be a day, such as 2026-10-01."),
    ("since=2026-12-01&until=2026-11-01", "The query: since must not be after until."),
    ("since=1999-12-31", "since: it must be at least 2000-01-01."),
    ("until=2200-01-01", "until: it must be at most 2199-12-31."),
    ("zone=Berlin", "zone: it is not a time zone."),
    ("sinse=2026-12-01", "sinse: there is no such member. Did you mean 'since'?"),
]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_wrong_in_a_query_is_said_in_words_for_people(quiet) -> None:
    for query, said in SAID_OF_QUERIES:
        answer = await send(quiet, quiet.hub.page_token("stu"), "GET", f"usage?{query}", None)
        assert (answer.code, problem(answer)["detail"]) == (422, said)
