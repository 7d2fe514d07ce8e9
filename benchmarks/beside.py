"""Callers who ask for as much as they may, and more, while others ask for GPUs.

Each load is what one person, or somebody who never logged in, can send: several requests at a time,
again and again, of which some are hung up on.  They are sent by a process of its own at the lowest
priority: a caller's work is done on the caller's machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from tests.service.crowd import Crowd

#: Requests of one caller at a time, and the seconds after which they hang up.
AT_ONCE, PATIENCE = 8, 3.0
GROUP = "cs101"
_EVENT = (
    "BEGIN:VEVENT\r\nUID:{n}\r\nSUMMARY:Lab\r\nDTSTART;TZID={zone}:{day}T130000\r\n"
    "DTEND;TZID={zone}:{day}T150000\r\nEND:VEVENT\r\n"
)
_ENDLESS = (
    "BEGIN:VTIMEZONE\r\nTZID:Ours\r\nBEGIN:STANDARD\r\nDTSTART:16010101T000000\r\n"
    "RRULE:FREQ=SECONDLY\r\nTZOFFSETFROM:+0100\r\nTZOFFSETTO:+0100\r\nEND:STANDARD\r\n"
    "END:VTIMEZONE\r\n"
)
_DAY = datetime.now(UTC) + timedelta(days=7)


def _calendar(events: int, zone: str = "Europe/Berlin", head: str = "") -> dict[str, Any]:
    listed = (_EVENT.format(n=n, zone=zone, day=f"{_DAY:%Y%m%d}") for n in range(events))
    text = f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{head}{''.join(listed)}END:VCALENDAR\r\n"
    return {"calendar": text, "group": GROUP, "gpu_class": "gpu", "seats": 1}


def _lab(number: int, rule: str) -> dict[str, Any]:
    return {
        "name": f"lab-{number}", "group": GROUP, "gpu_class": "gpu", "seats": 1,
        "start": f"{_DAY + timedelta(hours=number):%Y-%m-%dT%H:00}", "end": "23:59",
        "zone": "UTC", "repeat": rule,
    }  # fmt: skip


_LABS = [_lab(number, "FREQ=WEEKLY;COUNT=12") for number in range(10)]
_NEVER = "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30"
#: By what they are: who sends them ("" is nobody that the hub knows), and each request.
LOADS: Mapping[str, tuple[str, tuple[tuple[str, str, Any], ...]]] = {
    "nobody": ("", ()),
    "1 MB calendars of a student": ("student", (("POST", "reservations.ics", _calendar(6500)),)),
    "calendars of an instructor": (
        "instructor",
        (
            ("POST", "reservations.ics", _calendar(6500)),
            ("POST", "reservations.ics", _calendar(1900)),
            ("POST", "reservations.ics", _calendar(1, "Ours", _ENDLESS)),
        ),
    ),
    "repetitions of an instructor": (
        "instructor",
        (
            ("POST", "reservations/check", {"reservations": _LABS}),
            ("POST", "reservations/check", {"reservations": [_lab(0, _NEVER)]}),
        ),
    ),
    "calendars and tables that a student reads": (
        "student",
        (
            ("GET", "reservations.ics", None),
            ("GET", "reservations?limit=200&since=2000-01-01T00:00:00Z", None),
            ("GET", "usage?by=day,project,person,class&since=2000-01-01", None),
            ("GET", "leases?limit=200", None),
        ),
    ),
    "tokens that are none": (
        "",
        (("GET", "me", None), ("GET", "openapi.json", None), ("POST", "leases", {})),
    ),
}  # fmt: skip


@asynccontextmanager
async def load(everybody: Crowd, name: str) -> AsyncIterator[None]:
    """Send one load for as long as the block runs."""
    who = LOADS[name][0]
    if name == "nobody":
        yield
        return
    scope = f"custom:gpulease:reserve!group={GROUP}"
    token = {"": "", "student": everybody.hub.page_token("eve")}.get(who)
    if token is None:
        token = everybody.hub.token("prof", scope)
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.beside", name, everybody.url),
        stdin=asyncio.subprocess.PIPE,
    )
    assert caller.stdin is not None
    caller.stdin.write(token.encode())
    caller.stdin.close()
    try:
        yield
    finally:
        caller.kill()
        await caller.wait()


async def _send(name: str, url: str, token: str) -> None:
    """Send a load until this process is ended; without a token, guess another one each time."""
    made, requests = itertools.count(), LOADS[name][1]

    async def send(http: aiohttp.ClientSession, at: int) -> None:
        for number in itertools.count(at):
            method, path, body = requests[number % len(requests)]
            headers = {"Authorization": f"token {token or f'guessed-{next(made)}'}"}
            with contextlib.suppress(TimeoutError, aiohttp.ClientError):
                async with (
                    asyncio.timeout(PATIENCE),
                    http.request(method, f"{url}api/{path}", json=body, headers=headers) as answer,
                ):
                    await answer.read()

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as senders:
        for number in range(AT_ONCE):
            senders.create_task(send(http, number))


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(_send(sys.argv[1], sys.argv[2], sys.stdin.read()))
