"""What browsers meet: log-in by redirect, cross-site checks, framing, headers."""

from __future__ import annotations

import json
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPResponse

from tests.helpers import wait_for_async
from tests.service.kit import COOKIE, Hub, Peer, Server, Site, cookie_of


async def fetch(site: Site, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(
        f"{site.url}{path}",
        method=method,
        body="{}" if method in {"POST", "PUT"} else None,
        headers={"Content-Type": "application/json", **headers},
        raise_error=False,
        follow_redirects=False,
        allow_nonstandard_methods=True,
    )


async def page(site: Site, hub: Hub, user: str = "stu") -> tuple[dict[str, str], str]:
    """Open a page as a logged-in browser; return its cookies header and cross-site token."""
    cookie = cookie_of(site, hub.page_token(user))
    response = await fetch(site, "", **{"Cookie": cookie, "Sec-Fetch-Mode": "navigate"})
    assert response.code == 200
    morsels = SimpleCookie(response.headers["Set-Cookie"])
    xsrf = morsels["_xsrf"].value
    assert xsrf in response.body.decode()
    return {"Cookie": f"{cookie}; _xsrf={xsrf}", "Sec-Fetch-Mode": "cors"}, xsrf


async def test_a_page_sends_an_unknown_browser_to_log_in_and_nothing_else_does(site: Site) -> None:
    response = await fetch(site, "", **{"Sec-Fetch-Mode": "navigate"})
    assert response.code == 302
    target = urlsplit(response.headers["Location"])
    assert target.path == "/hub/api/oauth2/authorize"
    asked = parse_qs(target.query)
    assert asked["client_id"] == ["service-gpulease"]
    assert asked["redirect_uri"] == ["/services/gpulease/oauth_callback"]
    assert (await fetch(site, "", **{"Sec-Fetch-Mode": "cors"})).code == 401
    assert (await fetch(site, "api/leases", **{"Sec-Fetch-Mode": "navigate"})).code == 401


async def test_a_made_up_cookie_is_nobody(site: Site) -> None:
    for cookie in (f"{COOKIE}=forged", f"{COOKIE}=2|1:0|10:1|x:y|z:w|abc"):
        response = await fetch(
            site, "api/leases", **{"Cookie": cookie, "Sec-Fetch-Mode": "navigate"}
        )
        assert response.code == 401


async def test_a_change_needs_the_cross_site_token_of_this_browser(site: Site, hub: Hub) -> None:
    headers, xsrf = await page(site, hub)
    _, foreign = await page(site, hub, "eve")
    for wrong in ({}, {"X-XSRFToken": foreign}):
        response = await fetch(site, "api/leases", "POST", **headers, **wrong)
        assert (response.code, json.loads(response.body)["reason"]) == (403, "xsrf_failed")
    right = {**headers, "X-XSRFToken": xsrf}
    assert (await fetch(site, "api/leases", "POST", **right)).code == 201


async def test_reading_by_script_needs_the_cross_site_token_too(site: Site, hub: Hub) -> None:
    headers, xsrf = await page(site, hub)
    assert (await fetch(site, "api/leases", **headers)).code == 403
    assert (await fetch(site, "api/leases", **{**headers, "X-XSRFToken": xsrf})).code == 200


async def test_a_token_in_an_address_is_never_read(site: Site, hub: Hub) -> None:
    token = hub.page_token("stu")
    for mode in ("navigate", "cors", "websocket"):
        response = await fetch(site, f"api/leases?token={token}", **{"Sec-Fetch-Mode": mode})
        assert response.code == 401


async def test_only_the_card_is_framed_and_nothing_inline_runs(site: Site, hub: Hub) -> None:
    cookie = cookie_of(site, hub.admin_token())
    for path in ("", "card", "group", "admin", "policy", "health", "nonsense"):
        response = await fetch(site, path, **{"Cookie": cookie, "Sec-Fetch-Mode": "navigate"})
        policy = dict(
            part.strip().split(" ", 1)
            for part in response.headers["Content-Security-Policy"].split(";")
        )
        assert policy["frame-ancestors"] == ("'self'" if path == "card" else "'none'"), path
        assert policy["script-src"] == "'self'"
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_card_says_in_its_frame_that_it_cannot_be_shown(site: Site, hub: Hub) -> None:
    headers = {"Cookie": cookie_of(site, hub.page_token("stu")), "Sec-Fetch-Mode": "navigate"}
    hub.down = True
    response = await fetch(site, "card", **headers)
    assert response.code == 502
    assert "frame-ancestors 'self'" in response.headers["Content-Security-Policy"]


FROM = [
    ({"Site": "same-origin", "Mode": "navigate", "Dest": "document"}, 200, 200, 200),
    ({"Site": "none", "Mode": "navigate", "Dest": "document"}, 200, 200, 200),
    ({"Site": "cross-site", "Mode": "navigate", "Dest": "document"}, 200, 200, 403),
    ({"Site": "same-origin", "Mode": "navigate", "Dest": "iframe"}, 403, 200, 403),
    ({"Site": "same-site", "Mode": "navigate", "Dest": "iframe"}, 403, 200, 403),
    ({"Site": "cross-site", "Mode": "navigate", "Dest": "iframe"}, 403, 403, 403),
    ({"Site": "same-origin", "Mode": "navigate", "Dest": "object"}, 403, 200, 403),
    ({}, 200, 200, 200),
]


async def test_where_a_browser_says_it_asks_from_is_checked(site: Site, hub: Hub) -> None:
    for said, page, card, data in FROM:
        headers = {f"Sec-Fetch-{name}": value for name, value in said.items()}
        headers["Cookie"] = cookie_of(site, hub.page_token("stu"))
        found = [(await fetch(site, path, **headers)).code for path in ("", "card", "api/me")]
        assert found == [page, card, data]


async def test_whether_the_card_may_change_something_is_said_to_it(run: Any, hub: Hub) -> None:
    for card_acts, said in ((False, 'card-acts" content=""'), (True, 'card-acts" content="yes"')):
        async with run(card_acts=card_acts) as site:
            headers = {"Cookie": cookie_of(site, hub.page_token("stu"))}
            assert said in (await fetch(site, "card", **headers)).body.decode()


async def test_a_page_of_the_same_origin_cannot_open_the_events(site: Site, hub: Hub) -> None:
    """A student's page, where servers share the hub's domain: it has the cookie and the origin."""
    headers, xsrf = await page(site, hub)
    _, anothers = await page(site, hub, "eve")
    browser = {
        **headers,
        "Sec-Fetch-Mode": "websocket",
        "Sec-Fetch-Site": "same-origin",
        "Origin": f"http://127.0.0.1:{site.service.port}",
    }
    for query in ("", "?_xsrf=", "?_xsrf=guessed", f"?_xsrf={anothers}"):
        with pytest.raises(HTTPClientError) as refused:
            await Peer.open(f"{site.url}api/events{query}", **browser)
        assert refused.value.code == 403
    own = await Peer.open(f"{site.url}api/events?_xsrf={xsrf}", **browser)
    assert isinstance(own, Peer)
    await own.next("snapshot")
    await own.close()


async def test_other_sites_do_not_have_the_cookies_sent_along(site: Site, hub: Hub) -> None:
    cookie = cookie_of(site, hub.page_token("stu"))
    cookies = []
    for headers in ({}, {"Cookie": cookie}):
        response = await fetch(site, "", **{"Sec-Fetch-Mode": "navigate"}, **headers)
        cookies += response.headers.get_list("Set-Cookie")
    assert len(cookies) >= 2
    for each in cookies:
        assert "samesite=lax" in each.lower()
        assert "httponly" in each.lower()


async def test_data_is_never_framed(site: Site) -> None:
    response = await fetch(site, "api/health")
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["Cache-Control"] == "no-store"
    assert "Server" not in response.headers


async def test_a_hub_elsewhere_may_frame_a_page(run, hub: Hub) -> None:
    async with run(hub_origin="https://hub.example") as site:
        cookie = cookie_of(site, hub.page_token("stu"))
        response = await fetch(site, "card", **{"Cookie": cookie, "Sec-Fetch-Mode": "navigate"})
        policy = response.headers["Content-Security-Policy"]
        assert "frame-ancestors https://hub.example" in policy


async def test_pages_of_leaders_and_admins_are_theirs(site: Site, hub: Hub) -> None:
    tokens = {
        "student": hub.page_token("stu"),
        "leader": hub.token("eve", "custom:gpulease:reserve!group=cs101"),
        "admin": hub.admin_token(),
    }
    expected = {
        "student": {"": 200, "group": 403, "admin": 403, "policy": 403},
        "leader": {"": 200, "group": 200, "admin": 403, "policy": 403},
        "admin": {"": 200, "group": 200, "admin": 200, "policy": 200},
    }
    for who, pages in expected.items():
        for path, code in pages.items():
            headers = {"Cookie": cookie_of(site, tokens[who]), "Sec-Fetch-Mode": "navigate"}
            assert (await fetch(site, path, **headers)).code == code, (who, path)


async def test_a_foreign_page_cannot_open_the_events(site: Site, hub: Hub) -> None:
    headers, xsrf = await page(site, hub)
    cookie = headers["Cookie"]
    url = f"{site.url}api/events?_xsrf={xsrf}"
    with pytest.raises(HTTPClientError) as refused:
        await Peer.open(url, Cookie=cookie, Origin="https://evil.example")
    assert refused.value.code == 403
    own = f"http://127.0.0.1:{site.service.port}"
    found = await Peer.open(url, Cookie=cookie, Origin=own)
    await found.next("snapshot")
    await found.close()


async def test_a_revoked_token_is_refused_soon(site: Site, hub: Hub) -> None:
    server = site.service._listeners[0]
    assert server is not None
    hub_auth = server.request_callback.settings["hub_auth"]  # type: ignore[attr-defined]
    assert hub_auth.cache_max_age == 30


async def test_the_description_of_the_api_names_every_route(site: Site) -> None:
    found = json.loads((await fetch(site, "api/openapi.json")).body)
    assert found["openapi"].startswith("3.1")
    assert {"get", "post"} <= set(found["paths"]["/leases"])
    ask = found["components"]["schemas"]["AskBody"]["properties"]
    assert ask["count"]["maximum"] == 64
    token = site.hub.page_token("stu")
    for path, methods in found["paths"].items():
        if "get" not in methods or path.endswith(("/supervisor", "/events")):
            continue
        at = path.replace("{id}", "x").replace("{version}", "1").lstrip("/")
        response = await fetch(site, f"api/{at}", Authorization=f"token {token}")
        assert b'"not_found"' not in response.body, path


async def test_metrics_name_no_user_server_or_lease(site: Site, hub: Hub) -> None:
    channel = await Server.join(site, hub.server_token("stu"))
    lease = await site.client(hub.server_token("stu")).ask({})
    await site.lease(lease["id"], "starting")
    token = {"Authorization": f"token {hub.metrics_token()}"}

    async def shown() -> str | None:
        found = (await fetch(site, "metrics", **token)).body.decode()
        held = 'gpulease_leases{gpu_class="simulated-gpu",state="starting"} 1.0'
        return found if held in found else None

    text = await wait_for_async(shown, 30, "the lease in the metrics")
    assert 'gpulease_waiting_seconds_count{gpu_class="simulated-gpu"} 1.0' in text
    assert "gpulease_queue_length" in text
    assert "stu" not in text.replace("status", "")
    assert lease["id"] not in text
    await channel.close()


async def test_a_page_that_is_not_there_is_said_in_the_pages_look(site: Site, hub: Hub) -> None:
    token = hub.page_token("stu")
    for path in ("nonsense", "admin/x", "api"):
        response = await fetch(site, path, Authorization=f"token {token}")
        assert response.code == 404, path
        assert response.headers["Content-Type"].startswith("text/html"), path
        assert b"There is no page at this address." in response.body


async def test_who_manages_a_group_by_the_policy_has_its_page(
    run: Any, tmp_path: Path, hub: Hub
) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(
        "pools: {simulated-gpu: {}}\nclasses: {gpu: {pool: simulated-gpu}}\n"
        "reservations: {groups: {cs101: {managers: [tom]}}}\n"
    )
    async with run(first_policy_file=file) as site:
        site.hub.user("ada", groups=("cs101",))
        for name, groups in (("tom", [{"name": "cs101"}]), ("eve", None)):
            site.hub.user(name, "")
            headers, token = await page(site, site.hub, name)
            headers["X-XSRFToken"] = token
            navigates = {**headers, "Sec-Fetch-Mode": "navigate"}
            menu = (await fetch(site, "", **navigates)).body.decode()
            assert ('href="/services/gpulease/group"' in menu) is bool(groups)
            code = 200 if groups else 403
            assert (await fetch(site, "group", **navigates)).code == code
            found = await fetch(site, "api/groups", **headers)
            assert found.code == code
            assert json.loads(found.body).get("items") == groups
        headers, token = await page(site, site.hub, "tom")
        headers["X-XSRFToken"] = token
        members = await fetch(site, "api/groups/members?group=cs101", **headers)
        assert json.loads(members.body) == {"items": ["ada", "stu"]}
