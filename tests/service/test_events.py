"""Live events: a reconnect is complete, whether it resumes or starts again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpulease.policy import reasons
from gpulease.policy.model import Lease, LeaseState
from gpulease.service.hubs.auth import Asker
from gpulease.service.languages import catalogue
from gpulease.service.leases.events import CLASSES_EVERY, FIGURES_EVERY, EventReader, Events
from gpulease.service.run import RunningService
from tests.helpers import wait_for_async
from tests.service import kit
from tests.service.kit import Hub, Server, Site

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Sink:
    """Keeps what a reader is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.told.append(message)

    def close(self) -> None:
        self.told.append({"type": "closed"})


def lease(name: str, user: str = "stu", **more: Any) -> Lease:
    made = Lease(name, user, "", "any", 1, (NOW, 1), NOW)
    return replace(made, **more)


def view(each: Lease) -> Any:
    state = each.state.value
    return {"id": each.id, "version": each.version, "state": state, "next_step": "The holder's."}


def granted(each: Lease, shown: Any) -> Any:
    return {**shown, "grant": {"token": "secret"}}


def reader(user: str = "stu", server: str | None = None, **more: Any) -> EventReader:
    return EventReader(Asker(user, **more), Sink(), server)


def told(found: EventReader, kind: str = "lease") -> list[str]:
    assert isinstance(found.sink, Sink)
    return [each["lease"]["id"] for each in found.sink.told if each["type"] == kind]


def last_id(found: EventReader) -> int:
    assert isinstance(found.sink, Sink)
    return found.sink.told[-1]["id"]


def publish(events: Events, each: Lease) -> None:
    events.publish(each, view(each))


@pytest.fixture
def events() -> Events:
    return Events(granted)


def test_a_reader_begins_with_everything_it_may_see(events: Events) -> None:
    publish(events, lease("a"))
    publish(events, lease("b", "ann"))
    for found, expected in (
        (reader(), ["a"]),
        (reader("root", admin=True), ["a", "b"]),
        (reader("bob"), []),
    ):
        events.join(found, None)
        (snapshot,) = found.sink.told  # type: ignore[attr-defined]
        assert [each["id"] for each in snapshot["leases"]] == expected


def test_only_changes_are_told_and_only_to_those_who_see_them(events: Events) -> None:
    mine, other = reader(), reader("ann")
    for found in (mine, other):
        events.join(found, None)
    publish(events, lease("a"))
    publish(events, lease("a"))
    publish(events, lease("a", version=2))
    assert told(mine) == ["a", "a"]
    assert told(other) == []


def figures(each: Lease, **more: Any) -> Any:
    now = {"utilisation": 0.5, "busy_share": 0.5, "ends_at": None, "position": None} | more
    return view(each) | now


class Room:
    """300 leases, an admin's page, a student's page and that student's server."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leases = [lease(f"l{n}", f"user-{n}") for n in range(300)]
        self.events = Events(granted, lambda: self.now)
        self.page, self.own = reader("root", admin=True), reader("user-7")
        self.server = reader("user-7", server="")
        for each in self.leases:
            self.events.publish(each, figures(each))
        for found in (self.page, self.own, self.server):
            self.events.join(found, None)

    def tick(self, **of_all: Any) -> None:
        self.now += 1.0
        for each in self.leases:
            self.events.publish(each, figures(each, **of_all))


def test_figures_that_only_move_are_told_a_page_every_few_seconds_and_a_server_at_once() -> None:
    room = Room()
    for second in range(60):
        room.tick(utilisation=0.05 * (second % 20))
    assert 300 <= len(told(room.page)) <= 300 * 60 / FIGURES_EVERY
    assert len(told(room.server)) == 60
    for _ in range(int(FIGURES_EVERY)):  # what moved last is told, too, and then it is quiet
        room.tick(utilisation=0.35)
    so_far = len(told(room.page))
    assert {each["lease"]["utilisation"] for each in room.page.sink.told[-300:]} == {0.35}  # type: ignore[attr-defined]
    for _ in range(20):
        room.tick(utilisation=0.35)
    assert len(told(room.page)) == so_far


def test_whatever_decides_something_is_told_at_once() -> None:
    room = Room()
    mine = room.leases[7]
    for more in (
        {"position": 3},
        {"position": 2},
        {"ends_at": "2026-01-01T00:10:00+00:00"},  # it counts down from here on
        {"ends_at": "2026-01-01T00:10:00+00:00", "verdict": "idle"},
        {"ends_at": None, "state": "warned", "warned_until": "2026-01-01T00:01:00+00:00"},
        {"utilisation": None},
    ):
        room.events.publish(mine, figures(mine, **more))
    assert told(room.page) == told(room.own) == told(room.server) == ["l7"] * 6
    room.events.publish(replace(mine, detail="words"), figures(mine, utilisation=None))
    assert len(told(room.page)) == 7


def test_an_end_that_wavers_is_not_told_and_one_that_moves_is() -> None:
    room = Room()
    for second in range(60):
        room.tick(ends_at=f"2026-01-01T00:10:0{2 + second % 3}+00:00")
    assert len(told(room.page)) == 300, "once, when it began to count down"
    assert len(told(room.server)) == 1
    room.tick(ends_at="2026-01-01T00:10:05+00:00")
    assert len(told(room.page)) == 600
    assert room.page.sink.told[-1]["lease"]["ends_at"].endswith("10:05+00:00")  # type: ignore[attr-defined]


def test_who_comes_now_sees_the_newest_figures() -> None:
    room = Room()
    room.tick(utilisation=0.9)
    late = reader("root", admin=True)
    room.events.join(late, None)
    assert {each["utilisation"] for each in late.sink.told[0]["leases"]} == {0.9}  # type: ignore[attr-defined]
    again = reader("root", admin=True)
    room.events.join(again, last_id(room.page))
    assert len(told(again)) == 300, "a resume is complete"


def test_a_resume_tells_what_changed_meanwhile_once_as_it_is_now(events: Events) -> None:
    first = reader()
    events.join(first, None)
    publish(events, lease("a"))
    seen = last_id(first)
    events.leave(first)
    for version in (2, 3, 4):
        publish(events, lease("a", version=version))
        publish(events, lease("b", version=version))
    again = reader()
    events.join(again, seen)
    assert told(again) == ["a", "b"]
    assert again.sink.told[0]["lease"]["version"] == 4  # type: ignore[attr-defined]
    assert told(first) == ["a"]


def test_a_resume_without_changes_says_that_the_link_is_up(events: Events) -> None:
    first = reader()
    events.join(first, None)
    again = reader()
    events.join(again, last_id(first))
    assert [each["type"] for each in again.sink.told] == ["classes", "messages"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("resume", [0, 5, 2**62])
def test_a_resume_of_another_service_gets_a_snapshot(events: Events, resume: int) -> None:
    publish(events, lease("a"))
    found = reader()
    events.join(found, resume)
    assert [each["type"] for each in found.sink.told] == ["snapshot"]  # type: ignore[attr-defined]


def test_a_resume_from_too_long_ago_gets_a_snapshot(events: Events) -> None:
    first = reader()
    events.join(first, None)
    seen = last_id(first)
    events.leave(first)
    for version in range(3000):
        publish(events, lease("a", version=version))
    found = reader()
    events.join(found, seen)
    assert [each["type"] for each in found.sink.told] == ["snapshot"]  # type: ignore[attr-defined]


def test_a_resume_over_a_lease_that_is_shown_no_more_gets_a_snapshot(events: Events) -> None:
    first = reader()
    events.join(first, None)
    publish(events, lease("a"))
    seen = last_id(first)
    events.leave(first)
    publish(events, lease("a", state=LeaseState.ENDED, version=2))
    publish(events, lease("b"))
    events.forget({"b"})
    found = reader()
    events.join(found, seen)
    (snapshot,) = found.sink.told  # type: ignore[attr-defined]
    assert [each["id"] for each in snapshot["leases"]] == ["b"]


def test_a_server_sees_its_own_leases_with_grants_and_no_ended_ones(events: Events) -> None:
    publish(events, lease("mine", server="lab"))
    publish(events, lease("default"))
    publish(events, lease("over", server="lab", state=LeaseState.ENDED))
    found = reader(server="lab")
    events.join(found, None)
    (snapshot,) = found.sink.told  # type: ignore[attr-defined]
    assert [each["id"] for each in snapshot["leases"]] == ["mine"]
    assert snapshot["leases"][0]["grant"]
    publish(events, lease("mine", server="lab", state=LeaseState.ENDED, version=2))
    assert told(found) == ["mine"]


def test_a_new_attempt_is_told_though_nothing_else_changed(events: Events) -> None:
    found = reader(server="")
    events.join(found, None)
    publish(events, lease("a", attempt=1))
    publish(events, lease("a", attempt=2))
    assert told(found) == ["a", "a"]


def test_the_providers_own_words_reach_admins_alone(events: Events) -> None:
    publish(events, lease("a", detail="node gpu-7: low on disk"))
    found = [reader("root", admin=True), reader(), reader(server="")]
    for each in found:
        events.join(each, None)
    details = [each.sink.told[0]["leases"][0].get("detail") for each in found]
    assert details == ["node gpu-7: low on disk", None, None]


def test_each_reader_is_told_a_next_step_of_their_own(events: Events) -> None:
    publish(events, lease("a", user="stu", state=LeaseState.QUEUED, reason="no_gpulease"))
    found = [reader("root", admin=True), reader("stu"), reader("stu", admin=True)]
    for each in found:
        events.join(each, None)
    admin, holder, both = (each.sink.told[0]["leases"][0]["next_step"] for each in found)
    assert "Install gpulease" in admin
    assert holder == both == "The holder's.", "an admin's own lease is theirs"


def test_newer_words_are_told_though_nothing_else_changed(events: Events) -> None:
    admin = reader("root", admin=True)
    events.join(admin, None)
    for words in ("tries to pull", "tries to pull", "backs off"):
        publish(events, lease("a", detail=words))
    assert isinstance(admin.sink, Sink)
    details = [each["lease"]["detail"] for each in admin.sink.told if each["type"] == "lease"]
    assert details == ["tries to pull", "backs off"]


async def test_who_comes_back_before_the_first_round_finds_every_lease(
    hub: Hub, tmp_path: Path
) -> None:
    async with kit.running(hub, tmp_path) as site:
        lease_id = (await site.client(hub.server_token("stu")).ask({}))["id"]
    service = RunningService(kit.options(tmp_path))
    await service.open()  # nothing else has run: the loop's first round comes after this
    page = reader()
    service.services.events.join(page, None)
    assert isinstance(page.sink, Sink)
    assert [each["id"] for each in page.sink.told[0]["leases"]] == [lease_id]
    await service.close()


async def test_a_resumed_channel_is_told_only_what_changed(site: Site) -> None:
    token = site.hub.page_token("stu")
    first = await Server.join(site, token)
    lease_id = (await site.client(token).ask({"server": ""}))["id"]
    await site.lease(lease_id, "starting")
    await wait_for_async(lambda: (first.view(lease_id) or {}).get("state") == "starting", 30)
    seen = first.messages[-1]["id"]
    await first.close()
    await site.client(token).end(lease_id)
    headers = {"Authorization": f"token {token}"}
    again = await Server.open(f"{site.url}api/events?resume={seen}", **headers)
    await wait_for_async(lambda: (again.view(lease_id) or {}).get("state") == "ended", 30)
    assert not again.of("snapshot")
    await again.close()


async def test_a_server_hears_in_the_language_that_it_asks_for(site: Site) -> None:
    token = site.hub.server_token("stu")
    server = await Server.join(site, token)
    lease_id = (await site.client(token).ask({"server": ""}))["id"]

    def heard(words: str) -> Any:
        async def shown() -> bool:
            return words in (server.view(lease_id) or {"sentence": ""})["sentence"]

        return wait_for_async(shown, 30, words)

    english, _ = reasons.STARTING["starting"]
    german = catalogue("de").gettext(english)
    assert german != english
    await heard(english)
    for language, sentence in (("de-DE", german), ("nl", english), ("de", german)):
        await server.say({"type": "language", "language": language})
        await heard(sentence)
    assert len(server.of("snapshot")) == 4
    await site.client(token).end(lease_id)
    await heard(catalogue("de").gettext(reasons.ENDED["returned"][0]))
    await server.close()


def test_a_change_costs_as_much_as_people_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    sees = EventReader.sees

    def counted(found: EventReader, each: Lease) -> bool:
        looked.append(found.asker.name)
        return sees(found, each)

    monkeypatch.setattr(EventReader, "sees", counted)
    events = Events(granted)
    readers = [reader(f"p{n}") for n in range(100) for _ in range(3)]
    readers += [reader("root", admin=True), reader("ina", leads=("cs101",))]
    for each in readers:
        events.join(each, None)
    mine = lease("l1", "p7")
    events.publish(mine, view(mine))
    assert sorted(looked) == ["ina", "p7", "p7", "p7", "root"]
    own = [each for each in readers if each.asker.name == "p7"]
    assert [told(each) for each in own] == [["l1"]] * 3
    assert len({id(each.sink.told[-1]) for each in own}) == 1, "one message, written once"
    for each in readers:
        events.leave(each)
    assert (events._own, events._wide) == ({}, set())


def test_what_is_free_is_told_at_once_and_then_once_a_second() -> None:
    at = [100.0]
    events = Events(granted, clock=lambda: at[0])
    found = reader()
    events.join(found, None)

    def free(number: int) -> list[Any]:
        shown: Any = [{"name": "gpu", "free": number}]
        events.publish_classes(shown)
        return [
            each["classes"][0]["free"]
            for each in found.sink.told
            if each["type"] == "classes"  # type: ignore[attr-defined]
        ]

    assert free(4) == [4]
    at[0] += CLASSES_EVERY / 2
    assert free(3) == [4], "so soon it waits"
    assert free(2) == [4]
    late = reader()
    events.join(late, None)
    assert late.sink.told[0]["classes"] == [{"name": "gpu", "free": 2}]  # type: ignore[attr-defined]
    at[0] += CLASSES_EVERY
    assert free(2) == [4, 2], "the last of them is told"
    at[0] += CLASSES_EVERY
    assert free(2) == [4, 2]
