"""``gpulease reservations apply``: make the service's reservations match a file.

Only the output is made here.  The service decides what may be reserved, and applies all or nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gpulease.client import ServiceClient
from gpulease.commands.service_client import client_of
from gpulease.errors import GPULeaseError
from gpulease.policy.calendar.ics_read import from_ics
from gpulease.policy.document import reservations_file
from gpulease.sizes import say_count
from gpulease.system.terminal import say


def run(arguments: argparse.Namespace) -> int:
    """Apply the file; return 0, 1 where something does not fit, 2 for mistakes in the file.

    Raises:
        GPULeaseError: the service's refusal, ``no_service``, ``no_token``, ``unreadable_file``.
    """
    file: Path = arguments.file
    given = {"group": arguments.group, "gpu_class": arguments.gpu_class, "seats": arguments.seats}
    text = _text(file)
    if file.suffix.lower() == ".ics" or text.lstrip("\ufeff\r\n ").startswith("BEGIN:VCALENDAR"):
        common = {key: value for key, value in given.items() if value is not None}
        zone = arguments.zone or ""
        read = from_ics(text, datetime.now(UTC), zone)
        bodies = reservations_file.completed(read, common)
        for left_out in read.left_out:
            say(f"left out: {left_out}")
    else:
        bodies, findings = reservations_file.read(text)
        for each in findings:
            say(f"{file}:{each.line}:{each.column}: {each.message}\n    {each.next_step}")
        if findings:
            return 2
    return asyncio.run(_apply(client_of(arguments.url), bodies, arguments))


async def _apply(client: ServiceClient, bodies: list[dict[str, Any]], arguments: Any) -> int:
    groups = sorted({body["group"] for body in bodies})
    there = {
        (each["group"], each["name"]): each for group in groups for each in await _of(client, group)
    }
    before = [there.pop((body["group"], body["name"]), None) for body in bodies]
    # A reservation that is over is not cancelled: a message about it would only puzzle people.
    ahead = [each for each in there.values() if each["manages"] and each["windows_ahead"]]
    gone = ahead if arguments.prune else []
    found = await client.call(
        "POST",
        "reservations/apply",
        {
            "reservations": bodies,
            "cancel": [each["id"] for each in gone],
            "dry_run": arguments.dry_run,
        },
    )
    for body, old, item in zip(bodies, before, found["items"], strict=True):
        say(_line(_what(old, item["reservation"], body), item))
    for each in gone:
        now = any(window["state"] == "open" for window in each["windows"])
        what = "is cancelled, also the session in progress" if now else "is cancelled"
        say(f"{each['name']}: not in the file, {what}")
    if not found["fits"]:
        say("Nothing was changed.")
        return 1
    if arguments.dry_run:
        say("This was a dry run: nothing was changed.")
    return 0


async def _of(client: ServiceClient, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        query = urlencode({"group": group, "offset": len(found), "limit": 200})
        page = await client.call("GET", f"reservations?{query}")
        found += page["items"]
        if not page["items"] or len(found) >= page["total"]:
            return found


def _what(before: dict[str, Any] | None, after: dict[str, Any], body: dict[str, Any]) -> str:
    if before is None:
        return "new"
    same = all(before.get(key) == after.get(key) for key in body)
    return "unchanged" if same else "changed"


def _line(what: str, found: dict[str, Any]) -> str:
    seen, problem = found["reservation"], found["problem"]
    if problem is not None:
        return f"{seen['name']}: does not fit. {problem['detail']}"
    ahead = say_count(seen["windows_ahead"], "session", "sessions")
    line = f"{seen['name']}: {what}, {seen['seats']} x {seen['gpu_class']} for {seen['group']}, "
    line += f"{ahead} ahead"
    if seen["windows"]:
        line += f", the first at {_span(seen['windows'][0])} ({seen['zone']})"
    short = seen.get("short")
    notes = [f"{short['sentence']} {short['next_step']}"] if short else []
    notes += [f"left out {each['start']} ({each['why']})" for each in seen["skipped"]]
    notes += seen["notes"] + (["the series is longer than 18 months: cut"] if seen["cut"] else [])
    return "\n    ".join([line, *notes])


def _span(window: dict[str, Any]) -> str:
    """Say when a session is, with the day of its end where that is another."""
    start, end = (window[name].replace("T", " ") for name in ("local_start", "local_end"))
    day = f"{end[:10]} " if end[:10] != start[:10] else ""
    return f"{start} to {day}{end[11:]}"


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GPULeaseError(
            "unreadable_file",
            f"{file} cannot be read.",
            next_step="Give the path of a readable file.",
        ) from error
