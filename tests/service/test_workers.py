"""What a person's input sizes is bounded, ends, and keeps out of the way of everybody else's."""

from __future__ import annotations

import asyncio
import json
import threading
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from gpulease.errors import GPULeaseError
from gpulease.policy import forms
from gpulease.policy.calendar import occurrences
from gpulease.policy.calendar.ics_read import MAX_TEXT
from gpulease.policy.calendar.occurrences import Calendar, Changed, Closure, Expanded
from gpulease.service import workers
from gpulease.service.reservations import expansion
from gpulease.service.routes import OPERATIONS
from gpulease.service.schemas.bodies import UsageQuery
from gpulease.service.workers import NICE, WAITING_MAX, Workers
from gpulease.store import usage
from tests.helpers import wait_for_async
from tests.policy.calendar.test_ics import BERLIN, OUTLOOK, calendar
from tests.service.kit import Hub, Site
from tests.service.test_bad_input import problem, send
from tests.service.test_reservations import LAB

LAB_IN_2024 = {
    **LAB,
    "gpu_class": "simulated-gpu",
    "start": "2024-03-04T14:00",
    "zone": "UTC",
    "repeat": "FREQ=WEEKLY",
}
#: To be looked for until it is ended: the clocks of this zone change every second since 1601.
ENDLESS = calendar(
    OUTLOOK.format(name="Ours"), head=BERLIN.format(name="Ours").replace("YEARLY", "SECONDLY")
)
#: Looked for until the year 9999, and together for longer than any machine's second.
NEVER, MANY = "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", 200
BODIES = {
    "reservations": LAB_IN_2024,
    "reservations/check": {"reservations": [LAB_IN_2024]},
    "reservations/apply": {"reservations": [LAB_IN_2024]},
    "reservations.ics": {"calendar": calendar(OUTLOOK.format(name="Europe/Berlin"))},
}


class Noticing(ThreadPoolExecutor):
    """asyncio's own threads, and what they were used for."""

    def __init__(self) -> None:
        super().__init__(4)
        self.used: set[str] = set()

    def submit(self, fn, /, *args, **kwargs):
        work = fn.args[0] if isinstance(fn, partial) else fn  # as ``asyncio.to_thread`` has it
        self.used.add(getattr(work, "__qualname__", repr(work)))
        return super().submit(fn, *args, **kwargs)


async def test_no_request_uses_the_threads_that_look_up_the_hub(site: Site, hub: Hub) -> None:
    threads = Noticing()
    asyncio.get_running_loop().set_default_executor(threads)
    policy = site.service.services.policies.text.text
    bodies = {**BODIES, **{key: {"text": policy} for key in ("policy", "policy/check", "whatif")}}
    for each in OPERATIONS:
        if each.path == "openapi.json":
            continue  # it takes as long as all the others, in the same threads as they
        path = each.path.replace("{id}", "x").replace("{version}", "1")
        body = None if each.method == "get" else json.dumps(bodies.get(each.path, {}))
        await send(site, hub.admin_token(), each.method.upper(), path, body)
    usual = {"getaddrinfo", "SimulatedProbe.sample", "SimulatedProbe.inventory"}
    assert threads.used >= {"getaddrinfo"}
    assert threads.used <= usual


def instructor(hub: Hub) -> str:
    return hub.token("prof", "custom:gpulease:reserve!group=cs101")


async def test_who_may_not_reserve_is_refused_before_a_calendar_is_kept(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a body of a megabyte nothing is kept, and nothing is started for it."""
    for path in sorted(BODIES):
        kept: list[int] = []
        handler = next(each.handler for each in OPERATIONS if each.path == path)
        finish = handler.on_finish

        def finished(self: Any, kept: list[int] = kept, finish: Any = finish) -> None:
            kept.append(len(self._body))
            finish(self)

        monkeypatch.setattr(handler, "on_finish", finished)
        body = json.dumps({"calendar": "x" * (MAX_TEXT - 100)})
        answer = await send(site, hub.page_token("stu"), "POST", path, body)
        assert problem(answer)["reason"] in {"may_not_reserve", "body_too_large"}
        assert (kept, children()) == ([0], [])


def children() -> list[psutil.Process]:
    """Return the processes that work something out."""
    return [each for each in psutil.Process().children() if _works_something_out(each)]


def _works_something_out(process: psutil.Process) -> bool:
    try:
        return "gpulease.service.reservations.expansion" in process.cmdline()
    except psutil.Error:  # it has ended
        return False


async def test_a_calendar_that_was_not_read_in_time_is_told_of(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended_before_it_answered(*_: object) -> list[Any]:
        return []

    monkeypatch.setattr(workers, "_answers", ended_before_it_answered)
    body = json.dumps({"calendar": ENDLESS, "group": "cs101"})
    answer = await send(site, instructor(hub), "POST", "reservations.ics", body)
    assert problem(answer)["title"] == "The calendar could not be read in time."


async def test_nothing_works_on_for_who_has_hung_up(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expansion, "CALENDAR_LIMIT", 3600.0)
    body = json.dumps({"calendar": ENDLESS, "group": "cs101"})
    port = site.service.port
    _, sending = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST {site.prefix}api/reservations.ics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: token {instructor(hub)}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    sending.write(f"{head}{body}".encode())
    await wait_for_async(lambda: len(children()) == 1, 30, "it is read")
    (reading,) = children()
    await wait_for_async(lambda: reading.nice() == NICE, 30, "it gives way to others")
    sending.close()
    await wait_for_async(lambda: not children(), 30, "it is ended")


async def test_one_person_has_one_thing_at_work_and_few_that_wait() -> None:
    workers, open_, begun = Workers(), threading.Event(), list[str]()

    def work(name: str) -> str:
        begun.append(name)
        assert open_.wait(60)
        return name

    asked = [asyncio.create_task(workers.thread("ann", work, "ann")) for _ in range(WAITING_MAX)]
    await wait_for_async(lambda: begun == ["ann"], 30, "the first is at work")
    with pytest.raises(GPULeaseError) as caught:
        await workers.thread("ann", work, "ann")
    assert (caught.value.reason, caught.value.status) == ("too_many_requests", 429)
    others = asyncio.create_task(workers.thread("bob", work, "bob"))
    await wait_for_async(lambda: begun == ["ann", "bob"], 30, "another person's is at work")
    open_.set()
    assert await asyncio.gather(*asked, others) == ["ann"] * WAITING_MAX + ["bob"]
    assert await workers.thread("ann", work, "again") == "again"
    workers.close()


async def test_a_batch_of_repetitions_is_bounded_as_one_and_names_the_one_that_never_ends() -> None:
    workers = Workers()
    calendars = [
        Calendar(datetime(2026, 3, 2, 14), datetime(2026, 3, 2, 16), "UTC", rule)
        for rule in ("FREQ=WEEKLY;COUNT=3", *[NEVER] * MANY, "FREQ=WEEKLY;COUNT=3")
    ]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    every = [expansion.Wanted(each, (), at, at) for each in calendars]
    first, *_, last = await expansion.expanded(workers, "prof", every, limit=1.0)
    assert isinstance(first, Expanded)
    assert len(first.occurrences) == 3
    assert str(last) == str(expansion._too_long())
    workers.close()


async def test_a_process_expands_a_calendar_as_this_one_would() -> None:
    start, week = datetime(2026, 3, 2, 14), timedelta(weeks=1)
    calendar = Calendar(
        start,
        start + timedelta(hours=2),
        "Europe/Berlin",
        "FREQ=WEEKLY;COUNT=6",
        also=(start + timedelta(days=2),),
        without=(start + week, start + timedelta(days=1)),  # the second names no session
        changed=(
            Changed(start + 2 * week),
            Changed(start + 3 * week, start + 3.5 * week, start + 3.6 * week),
        ),
    )
    closed = Closure(date(2026, 3, 30), date(2026, 3, 31), "Spring")
    wanted = expansion.Wanted(calendar, (closed,), *[datetime(2026, 1, 1, tzinfo=UTC)] * 2)
    workers = Workers()
    (found,) = await expansion.expanded(workers, "prof", [wanted])
    workers.close()
    here = occurrences.expand(calendar, (closed,), made=wanted.made, now=wanted.now)
    assert found == here
    assert here.skipped
    assert here.missed


async def test_what_is_refused_has_read_nothing_of_the_store(
    site: Site, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asks for GPUs are written by the thread that reads, so whoever reads waits for a turn."""
    services, reads, part = site.service.services, [], usage.part

    def counted(*args: Any, **kwargs: Any) -> Any:
        reads.append(args)
        return part(*args, **kwargs)

    monkeypatch.setattr(usage, "part", counted)
    token, asked = hub.server_token("stu"), WAITING_MAX + 4
    async with services.workers.turn("stu"):
        asking = [
            asyncio.create_task(send(site, token, "GET", "usage.csv", None)) for _ in range(asked)
        ]
        refused = asked - WAITING_MAX + 1
        await wait_for_async(lambda: sum(t.done() for t in asking) == refused, 30, "refusals")
        assert not reads
    codes = [(await task).code for task in asking]
    assert (codes.count(200), codes.count(429)) == (WAITING_MAX - 1, refused)
    assert len(reads) == WAITING_MAX - 1


def test_zones_are_looked_for_in_their_folders_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[None] = []
    found = zoneinfo.available_timezones()
    monkeypatch.setattr(forms, "available_timezones", lambda: walks.append(None) or found)
    forms.zones.cache_clear()
    for zone in ("nowhere", "Europe/Berlin", "Europe/Berlim") * 20:
        with suppress(ValidationError):
            UsageQuery(zone=zone)
        with suppress(GPULeaseError):
            occurrences.zone_of(zone)
    assert len(walks) == 1
