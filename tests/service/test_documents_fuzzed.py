"""Whatever stands in a field of a reservation or a request: it is refused whole, or done whole."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient

from gpulease.protocol.asks import AskBody
from gpulease.service.schemas.reservation_bodies import ChangeBody, ReservationBody
from tests.fuzzing import ODD
from tests.helpers import wait_for_async
from tests.service.kit import Site, running, works_out_here
from tests.service.test_reservations import DAY, LAB, POLICY, WEEK2

#: Of the right form, and odd in what it means.
MEANT = (
    1, 2, 99999, 0.5, "gpu", "gone", "cs101", "other", "lab", "Europe/Berlin", "Nowhere/Land",
    f"{DAY}T14:00", f"{DAY}T02:30", f"{WEEK2}T13:00", "1999-01-01T00:00", "9999-12-31T23:59",
    "0001-01-01T00:00", "16:00", "24:00", "14:00", DAY, "FREQ=WEEKLY;COUNT=2",
    "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=YEARLY;INTERVAL=0", "FREQ=DAILY;UNTIL=x",
    "RRULE:FREQ=DAILY", "5m", "-5m", "1e9d", True, False, ["stu"], [f"{WEEK2}T14:00"], ["x"],
    {"stu": "30m"}, {"stu": -1}, {"at": f"{DAY}T14:00", "cancelled": True}, {"at": f"{DAY}T15:00"},
    {"at": f"{DAY}T14:00", "start": f"{DAY}T17:00"}, {"end_now": True}, ["a@b.c"], ["a b@c"],
    {"at": f"{DAY}T14:00", "start": f"{DAY}T13:00", "end": f"{DAY}T18:00"}, "\u202e", "a\nb",
)  # fmt: skip
#: What is worked out of others, and may change with any.
DERIVED = {
    "windows", "windows_ahead", "version", "sentence", "gpu_hours_ahead", "cut", "skipped", "notes",
}  # fmt: skip


@pytest.fixture
async def site(hub, tmp_path, monkeypatch):
    works_out_here(monkeypatch)
    first = tmp_path / "policy.yaml"
    first.write_text(POLICY + "limits: {changes_per_minute: 1000000}\n")
    async with running(hub, tmp_path, gpus=3, first_policy_file=first) as found:
        yield found


class API:
    """Sends bodies as somebody and says what came of them."""

    def __init__(self, site: Site, token: str) -> None:
        self._url, self._token = f"{site.url}api/", token

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        found = await AsyncHTTPClient().fetch(
            self._url + path,
            method=method,
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"token {self._token}", "Content-Type": "application/json"},
            raise_error=False,
            allow_nonstandard_methods=True,
            request_timeout=60,
        )
        assert found.code < 500, f"{method} {path} {body}: {found.body!r}"
        assert found.code != 429, "a bound of the test's own"
        return found.code, json.loads(found.body) if found.body else None


def bent(
    right: dict[str, Any], names: list[str], rounds: int, seed: int
) -> list[tuple[dict[str, Any], set[str]]]:
    """Return the right body, then with odd values: in every field in turn, in two or three."""
    pick = random.Random(seed)
    odd = [*(each for each in ODD if each == each), *MEANT]
    fields = [[name] for name in names for _ in range(rounds)]
    fields += [pick.sample(names, pick.choice((2, 3))) for _ in range(10 * rounds)]
    return [
        ({**copy.deepcopy(right), **{name: pick.choice(odd) for name in some}}, set(some))
        for some in ([], *fields)
    ]


def members(model: Any) -> list[str]:
    return list(model.model_fields)


async def everything(api: API) -> Any:
    return (await api("GET", "reservations"))[1]["items"]


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.nightly)])
async def test_a_new_reservation_is_refused_whole_or_made_whole(site, rounds):
    api = API(site, site.hub.token("prof", "custom:gpulease:reserve!group=cs101"))
    before = await everything(api)
    made = 0
    for body, _ in bent(LAB, members(ReservationBody), rounds, 12):
        status, answer = await api("POST", "reservations", body)
        after = await everything(api)
        if status >= 400:
            assert after == before, f"{body} was refused with {answer} and changed something"
            continue
        made += 1
        assert [each["id"] for each in after] == [answer["id"]], body
        assert (await api("DELETE", f"reservations/{answer['id']}", {"note": ""}))[0] < 300
        assert await everything(api) == before
    assert made, "some of it is right"
    assert site.service.services.loop.problem == ""


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.nightly)])
async def test_a_changed_reservation_is_refused_whole_or_changed_whole(site, rounds):
    api = API(site, site.hub.token("prof", "custom:gpulease:reserve!group=cs101"))
    where = f"reservations/{(await api('POST', 'reservations', LAB))[1]['id']}"
    before = (await api("GET", where))[1]
    changed = 0
    for body, named in bent({}, members(ChangeBody), rounds, 13):
        status, answer = await api("PATCH", where, body)
        after = (await api("GET", where))[1]
        if status >= 400:
            assert after == before, f"{body} was refused with {answer} and changed something"
            continue
        assert after["version"] - before["version"] in (0, 1), body
        changed += after["version"] - before["version"]
        moved = {"end"} if "start" in named else set()  # its length stays
        for name in set(before) - named - DERIVED - moved:
            assert after[name] == before[name], f"{body} changed {name} as well"
        before = after
    assert changed, "some of it is right"


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.nightly)])
async def test_a_request_is_refused_whole_or_made_whole(site, rounds):
    api = API(site, site.hub.server_token("stu"))
    made = 0

    async def live() -> Any:
        return (await api("GET", "leases?state=live"))[1]["items"]

    async def none_left() -> bool:
        return await live() == []

    for body, _ in bent({}, list(AskBody.__annotations__), rounds, 14):
        status, answer = await api("POST", "leases", body)
        if status >= 400:
            assert await live() == [], f"{body} was refused with {answer} and is there"
            continue
        made += 1
        assert [each["id"] for each in await live()] == [answer["id"]]
        await api("DELETE", f"leases/{answer['id']}")
        await wait_for_async(none_left, 30, "the end of it")
    assert made, "some of it is right"
    assert site.service.services.loop.problem == ""
