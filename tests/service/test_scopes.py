"""Each method shows which permission it needs, and asks for it."""

from __future__ import annotations

import json

import pytest

from gpulease.service.hubs.auth import SCOPE_ADMIN, SCOPE_METRICS, SCOPE_REQUEST, SCOPE_RESERVE
from gpulease.service.rest.base import PUBLIC, BaseHandler, needed_scopes, needs_scope
from gpulease.service.routes import OPERATIONS
from tests.service.kit import Hub, Site
from tests.service.test_bad_input import problem, send

OPENED = [(each.method, each.path, each.handler) for each in OPERATIONS]
REASONS = {
    SCOPE_REQUEST: "may_not_ask",
    SCOPE_RESERVE: "may_not_reserve",
    SCOPE_ADMIN: "admins_only",
    SCOPE_METRICS: "may_not_measure",
}


def test_each_method_shows_what_it_needs() -> None:
    for method, path, handler in OPENED:
        scopes = needed_scopes(handler, method)
        assert scopes, f"{method} {path} is marked with no scope, so nobody may use it"
        assert (PUBLIC in scopes) <= (not issubclass(handler, BaseHandler))


def test_every_method_that_a_handler_has_is_described() -> None:
    described = {(handler, method) for method, _, handler in OPENED}
    for handler in {handler for _, _, handler in OPENED}:
        for method in ("get", "post", "put", "patch", "delete"):
            assert bool(needed_scopes(handler, method)) == ((handler, method) in described)


GUARDED = [each for each in OPENED if needed_scopes(each[2], each[0])[0] in REASONS]


async def test_a_token_without_the_scope_is_refused_before_its_body_is_looked_at(
    site: Site, hub: Hub
) -> None:
    for method, path, handler in GUARDED:
        at = path.replace("{id}", "x").replace("{version}", "1")
        body = None if method == "get" else "no JSON"
        response = await send(site, hub.token("stu"), method.upper(), at, body)
        assert response.code == 403
        assert problem(response)["reason"] == REASONS[needed_scopes(handler, method)[0]]


async def test_what_is_marked_with_nothing_is_closed_to_everybody(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpulease.service.rest.site import Me

    monkeypatch.setattr(Me.get, "needed_scopes", (), raising=True)
    response = await send(site, hub.admin_token(), "GET", "me", None)
    assert (response.code, problem(response)["reason"]) == (403, "forbidden")


def test_one_of_several_scopes_is_enough() -> None:
    @needs_scope("a", "b")
    def get() -> None: ...

    assert get.needed_scopes == ("a", "b")  # type: ignore[attr-defined]


async def test_the_description_says_what_is_public_and_the_bounds_of_each_parameter(
    site: Site, hub: Hub
) -> None:
    response = await send(site, "", "GET", "openapi.json", None)
    found = json.loads(response.body)["paths"]
    assert {path for path in found if found[path].get("get", {}).get("security") == []} == {
        "/health",
        "/openapi.json",
    }
    assert found["/policy"]["put"]["security"] == [{"token": [SCOPE_ADMIN]}]
    token, bounds = hub.admin_token(), 0
    for path, methods in found.items():
        for said in methods.get("get", {}).get("parameters", ()):
            bound = said["schema"].get("maximum")
            if said["in"] == "query" and bound is not None and "{" not in path:
                bounds += 1
                for value, code in ((bound, 200), (bound + 1, 422)):
                    at = f"{path[1:]}?{said['name']}={value}"
                    assert (await send(site, token, "GET", at, None)).code == code, at
    assert bounds
    said = json.dumps(json.loads(response.body))
    assert not {word for word in ("ge", "le", "gt", "lt") if f'"{word}":' in said}
