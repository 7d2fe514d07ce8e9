"""``gpulease simulate`` and ``gpulease policy whatif``: replays, as a table, JSON or a picture.

Owns where traces, policies and devices come from on a command line, and what is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from gpulease.errors import GPULeaseError
from gpulease.terminal import say

if TYPE_CHECKING:
    from gpulease.policy.model import Device, PolicyDocument
    from gpulease.simulate.trace import Trace

_DEVICES = re.compile(r"(?P<pool>[A-Za-z0-9._-]+)=(?P<count>[0-9]{1,5})(x(?P<each>[0-9]{1,3}))?")
#: A what-if takes a minute at most; the answer may be long.
_TIMEOUT = 90.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gpulease simulate``."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, metavar="FILE", help="CSV, one row for each GPU cell")
    source.add_argument("--history", action="store_true", help="what the database recorded")
    source.add_argument("--scenario", choices=("course", "research", "mix"), help="invented people")
    parser.add_argument("--seed", type=int, default=1, help="of the scenario")
    parser.add_argument("--weeks", type=float, default=4, help="of the scenario")
    parser.add_argument("--days", type=float, default=7, help="of the history, back from now")
    parser.add_argument(
        "--database", metavar="URL", help="of the history; by default what DATABASE_URL says"
    )
    parser.add_argument("--policy", type=Path, metavar="FILE", help="a policy document")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", nargs="+", default=[], help="other documents"
    )
    parser.add_argument(
        "--devices",
        metavar="POOL=N[xM]",
        action="append",
        default=[],
        help="N nodes with M GPUs each, or N GPUs of one node; repeatable",
    )
    parser.add_argument("--think", type=float, default=1.0, help="factor of the time to think")
    parser.add_argument(
        "--start", type=float, default=5.0, help="seconds that a lease's start takes"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw GPUs over time")
    parser.add_argument("--save-trace", type=Path, metavar="FILE", help="write the trace as CSV")


def run(arguments: argparse.Namespace) -> int:
    """Replay; return 0.

    Raises:
        GPULeaseError: ``bad_trace``, ``bad_policy``, ``bad_option``, ``unreadable_file`` or what
            the store refuses with.
    """
    from gpulease.simulate.world import Assumptions, replay

    if not isfinite(arguments.think) or not 0 < arguments.think <= 100:
        raise _bad("--think", "Give a factor above 0 and at most 100, such as 0.5.")
    if not isfinite(arguments.start) or not 0 <= arguments.start <= 3600:
        raise _bad("--start", "Give seconds from 0 to 3600.")
    trace = _trace(arguments)
    if arguments.save_trace is not None:
        _save(arguments.save_trace, trace)
    policies = _policies(arguments)
    devices = _devices(arguments, policies[0][1])
    assumed = Assumptions(think=arguments.think, start=arguments.start)
    found = [replay(trace, policy, devices, assumed, name=name) for name, policy in policies]
    if arguments.picture is not None:
        from gpulease.simulate.picture import drawn

        _write(arguments.picture, drawn(found, trace.begin))
    if arguments.json:
        say(json.dumps([each.to_json() for each in found], indent=2))
    else:
        from gpulease.simulate.table import table

        say(table(found))
    return 0


def whatif(arguments: argparse.Namespace, text: str) -> int:
    """Ask the service what a document would have made of the last days; return 0.

    Raises:
        GPULeaseError: the service's refusal, ``no_service``, ``no_token``.
    """
    from gpulease.admin_command import client_of

    client = client_of(arguments.url, timeout=_TIMEOUT)
    body = {"text": text, "days": arguments.days}
    found = asyncio.run(client.call("POST", "whatif", body))
    if arguments.json:
        say(json.dumps(found, indent=2))
        return 0
    lines = [f"{found['since'][:16]} to {found['until'][:16]}, {found['requests']} requests"]
    lines += [f"  {change}" for change in found["changes"]] or ["  This document changes nothing."]
    lines += ["", *found["sentences"], ""]
    ranged = found["sensitivity"]["differences"]["held_hours"]
    if ranged["least"] is not None:
        lines.append(
            f"GPU-hours held differ by {ranged['least']:+.1f} to {ranged['most']:+.1f} where people"
            " think for half as long to twice as long."
        )
    lines.append(found["assumption"])
    if not found["complete"]:
        lines.append("Not all of it could be worked out in time: ask for fewer days.")
    say("\n".join(lines))
    return 0


def _trace(arguments: argparse.Namespace) -> Trace:
    from gpulease.simulate.trace import read_csv

    if arguments.trace is not None:
        try:
            with arguments.trace.open(encoding="utf-8", newline="") as file:
                return read_csv(file)
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(arguments.trace, error) from error
    if arguments.scenario is not None:
        from gpulease.simulate.scenarios import SCENARIOS

        if not isfinite(arguments.weeks) or not 0 < arguments.weeks <= 60:
            raise _bad("--weeks", "Give a number above 0 and at most 60.")
        make, _ = SCENARIOS[arguments.scenario]
        return make(arguments.seed, weeks=arguments.weeks)
    return _history(arguments)


def _history(arguments: argparse.Namespace) -> Trace:
    from gpulease.database_command import address_of
    from gpulease.simulate.history import recorded
    from gpulease.store import read_past

    if not isfinite(arguments.days) or not 0 < arguments.days <= 400:
        raise _bad("--days", "Give a number above 0 and at most 400.")
    until = datetime.now(UTC)
    since = until - timedelta(days=arguments.days)
    past = read_past(address_of(arguments.database), since, until)
    found = recorded(past.leases, past.verdicts, since, until, past.reservations)
    if not found.trace.sessions:
        raise GPULeaseError(
            "no_history",
            "Nobody had a GPU in this time: there is nothing to replay.",
            next_step="Give more --days.",
            status=409,
        )
    return found.trace


def _policies(arguments: argparse.Namespace) -> list[tuple[str, PolicyDocument]]:
    from gpulease.policy import document

    if arguments.policy is None and not arguments.compare:
        if not arguments.devices:
            raise _bad("--policy", "Give a document, or --devices POOL=N for the default one.")
        return [("default", document.default_document(_made(arguments.devices)))]
    files = [file for file in (arguments.policy, *arguments.compare) if file is not None]
    found = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(file, error) from error
        found.append((str(file), document.parse(text, 0)))
    return found


def _devices(arguments: argparse.Namespace, policy: PolicyDocument) -> tuple[Device, ...]:
    from gpulease.policy.model import Device

    if arguments.devices:
        return _made(arguments.devices)
    if arguments.scenario is not None and len(policy.pools) == 1:
        from gpulease.simulate.scenarios import SCENARIOS

        pool = policy.pools[0].name
        return tuple(Device(f"{pool}-{n}", pool) for n in range(SCENARIOS[arguments.scenario][1]))
    raise _bad("--devices", "Say how many GPUs each pool has, such as --devices t4=8x4.")


def _made(given: Sequence[str]) -> tuple[Device, ...]:
    from gpulease.policy.model import Device

    found = []
    for text in given:
        read = _DEVICES.fullmatch(text)
        if read is None or not int(read["count"]) or (read["each"] and not int(read["each"])):
            raise _bad("--devices", f"{text!r} is none: write POOL=N or POOL=NODESxGPUS.")
        pool, count = read["pool"], int(read["count"])
        nodes, each = (count, int(read["each"])) if read["each"] else (1, count)
        found += [
            Device(f"{pool}-{node:04}-{number:03}", pool, node=f"{pool}-{node:04}")
            for node in range(nodes)
            for number in range(each)
        ]
    return tuple(found)


def _save(file: Path, trace: Trace) -> None:
    from gpulease.simulate.trace import write_csv

    try:
        with file.open("w", encoding="utf-8", newline="") as stream:
            write_csv(trace, stream)
    except OSError as error:
        raise _unreadable(file, error) from error


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> GPULeaseError:
    why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return GPULeaseError(
        "unreadable_file",
        f"{file} cannot be used: {why}.",
        next_step="Give the path of a file that you may use.",
    )


def _bad(option: str, step: str) -> GPULeaseError:
    return GPULeaseError("bad_option", f"{option} does not fit.", next_step=step)
