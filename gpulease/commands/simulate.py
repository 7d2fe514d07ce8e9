"""``gpulease simulate`` and ``gpulease policy whatif``: replays, as a table, JSON or a picture."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from gpulease.commands.files import usable
from gpulease.errors import GPULeaseError
from gpulease.system.terminal import say

if TYPE_CHECKING:
    from gpulease.policy.model import Device, PolicyDocument
    from gpulease.simulate.outcome import ReplayOutcome
    from gpulease.simulate.table import Range
    from gpulease.simulate.trace import Trace

_DEVICES = re.compile(r"(?P<pool>[A-Za-z0-9._-]+)=(?P<count>[0-9]{1,5})(x(?P<each>[0-9]{1,3}))?")
#: A what-if takes a minute at most; the answer may be long.
_TIMEOUT = 90.0
#: Factors of the time to think; the first is what is shown, the others are its sensitivity.
_FACTORS = (1.0, 0.5, 2.0)
_ASSUMPTION = (
    "People are assumed to behave the same whatever the policy: the same GPU work with the same"
    " time to think between, a longer wait moving all that follows."
)


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
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="a policy document; else the one of the history, or the default",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", nargs="+", default=[], help="other documents"
    )
    parser.add_argument(
        "--sensitivity",
        action="store_true",
        help="replay the comparison for half and twice the time to think as well: thrice as long",
    )
    parser.add_argument(
        "--devices",
        metavar="POOL=N[xM]",
        action="append",
        default=[],
        help="N nodes with M GPUs each, or N GPUs of one node, 0 for none; repeatable",
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
    from gpulease.simulate.trace import write_csv
    from gpulease.simulate.world import Assumptions, replay

    if not isfinite(arguments.think) or not 0 < arguments.think <= 100:
        raise _bad("--think", "Give a factor above 0 and at most 100, such as 0.5.")
    if not isfinite(arguments.start) or not 0 <= arguments.start <= 3600:
        raise _bad("--start", "Give seconds from 0 to 3600.")
    if arguments.sensitivity and not arguments.compare:
        raise _bad("--sensitivity", "Give --compare FILE: the range is that of a difference.")
    trace = _trace(arguments)
    if arguments.save_trace is not None:
        file = arguments.save_trace
        with _usable(file), file.open("w", encoding="utf-8", newline="") as stream:
            write_csv(trace, stream)
    policies, devices = _site(arguments)
    _refuse_unknown(trace, policies, devices, written=arguments.trace is not None)
    assumed = Assumptions(start=arguments.start)
    thinks = [arguments.think * factor for factor in (_FACTORS if arguments.sensitivity else (1,))]
    found = [
        [
            replay(trace, policy, devices, replace(assumed, think=think), name=name)
            for name, policy in policies
        ]
        for think in thinks
    ]
    if arguments.picture is not None:
        from gpulease.simulate.table import drawn

        with _usable(arguments.picture):
            arguments.picture.write_text(drawn(found[0], trace.begin), encoding="utf-8")
    differences = _differences(found) if arguments.sensitivity else {}
    if arguments.json:
        told = {
            "assumption": _ASSUMPTION,
            "outcomes": [each.to_json() for each in found[0]],
            "sensitivity": {"think": sorted(thinks), "differences": differences},
        }
        say(json.dumps(told, indent=2))
    else:
        from gpulease.simulate.table import ranged, table

        say("\n".join([table(found[0]), "", *ranged(differences), _ASSUMPTION]))
    return 0


def _refuse_unknown(
    trace: Trace,
    policies: Sequence[tuple[str, PolicyDocument]],
    devices: Sequence[Device],
    *,
    written: bool,
) -> None:
    """Refuse pools and classes that no policy has: nobody would get a GPU, and all be saved.

    A history may have classes that are gone (not ``written``): the table says who was refused.
    """
    pools = sorted({pool.name for _, policy in policies for pool in policy.pools})
    for pool in sorted({device.pool for device in devices}.difference(pools)):
        raise _bad("--devices", f"No policy has a pool {pool!r}; there is {', '.join(pools)}.")
    classes = sorted({each.name for _, policy in policies for each in policy.classes})
    asked = {session.gpu_class for session in trace.sessions} - {""}
    for name in sorted(asked.difference(classes)) if written else ():
        raise GPULeaseError(
            "bad_trace",
            f"The trace asks for class {name!r}, which no policy has.",
            next_step=f"There is {', '.join(classes)}.",
        )


def _differences(found: Sequence[Sequence[ReplayOutcome]]) -> dict[str, Range]:
    """Return by the name of each further policy how its figures differ from those of the first.

    Args:
        found: for each time to think the outcomes, in the order of the policies.
    """
    from gpulease.simulate.whatif import ranges

    as_json = [[each.to_json() for each in row] for row in found]
    return {
        each.name: ranges([(row[0], row[number]) for row in as_json])
        for number, each in enumerate(found[0])
        if number
    }


def whatif(arguments: argparse.Namespace, text: str) -> int:
    """Ask the service what a document would have made of the last days; return 0.

    Raises:
        GPULeaseError: the service's refusal, ``no_service``, ``no_token``.
    """
    from gpulease.commands.service_client import client_of
    from gpulease.simulate.table import signed

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
        least, most = (signed(ranged[name], 1) for name in ("least", "most"))
        range_ = least if least == most else f"{least} to {most}"
        lines.append(
            f"GPU-hours held differ by {range_} where people think for half as long to twice as"
            " long."
        )
    lines.append(found["assumption"])
    if not found["complete"]:
        lines.append("Not all of it could be worked out in time: ask for fewer days.")
    say("\n".join(lines))
    return 0


def _trace(arguments: argparse.Namespace) -> Trace:
    from gpulease.simulate.trace import read_csv

    if arguments.trace is not None:
        with _usable(arguments.trace), arguments.trace.open(encoding="utf-8", newline="") as file:
            return read_csv(file)
    if arguments.scenario is not None:
        from gpulease.simulate.scenarios import SCENARIOS

        if not isfinite(arguments.weeks) or not 0 < arguments.weeks <= 60:
            raise _bad("--weeks", "Give a number above 0 and at most 60.")
        make, _ = SCENARIOS[arguments.scenario]
        return make(arguments.seed, weeks=arguments.weeks)
    return _history(arguments)


def _history(arguments: argparse.Namespace) -> Trace:
    from gpulease.commands.database import address_of
    from gpulease.simulate.history import recorded
    from gpulease.store import reading, usage

    if not isfinite(arguments.days) or not 0 < arguments.days <= 400:
        raise _bad("--days", "Give a number above 0 and at most 400.")
    until = datetime.now(UTC)
    since = until - timedelta(days=arguments.days)
    with reading(address_of(arguments.database)) as session:
        past = usage.past(session, since, until)
    found = recorded(past.leases, past.verdicts, since, until, past.reservations)
    if not found.trace.sessions:
        raise GPULeaseError(
            "no_history",
            "Nobody had a GPU in this time: there is nothing to replay.",
            next_step="Give more --days.",
        )
    return found.trace


def _site(
    arguments: argparse.Namespace,
) -> tuple[list[tuple[str, PolicyDocument]], tuple[Device, ...]]:
    """Return the policies by name, the one to compare with first, and the GPUs.

    What is not given is that of the history, or of the scenario.
    """
    from gpulease.policy import document

    first = [(str(arguments.policy), _parsed(arguments.policy))] if arguments.policy else []
    others = [(str(file), _parsed(file)) for file in arguments.compare]
    devices = _made(arguments.devices)
    if arguments.history and not (first and arguments.devices):
        recorded = _recorded_site(arguments.database)
        if recorded is not None:
            first = first or [("in force", recorded[0])]
            devices = devices if arguments.devices else recorded[1]
    if not arguments.devices and arguments.scenario is not None:
        devices = _of_scenario(
            arguments.scenario, (first + others)[0][1] if first + others else None
        )
    policies = first + others
    if not devices and not (arguments.devices and policies and all(x.elastic for _, x in policies)):
        raise _bad(
            "--devices",
            "Say how many GPUs each pool has, POOL=N such as t4=8x4; none are enough only for a"
            " policy with a pool that grows (elastic).",
        )
    return policies or [("default", document.default_document(devices))], devices


def _recorded_site(database: str | None) -> tuple[PolicyDocument, tuple[Device, ...]] | None:
    """Return what was last decided from: the policy in force and the GPUs."""
    from gpulease.commands.database import address_of
    from gpulease.policy import document
    from gpulease.simulate.trace import devices_from_json
    from gpulease.store import history, reading

    with reading(address_of(database)) as session:
        site = history.newest_site(session)
    if site is None:
        return None
    return document.parse(site["policy"]), devices_from_json(site["devices"])


def _of_scenario(name: str, policy: PolicyDocument | None) -> tuple[Device, ...]:
    """Return the GPUs that a scenario is made for, where there is one pool only."""
    from gpulease.simulate.scenarios import SCENARIOS

    if policy is not None and len(policy.pools) != 1:
        return ()
    pool = "gpu" if policy is None else policy.pools[0].name
    return _made([f"{pool}={SCENARIOS[name][1]}"])


def _parsed(file: Path) -> PolicyDocument:
    from gpulease.policy import document

    with _usable(file):
        text = file.read_text(encoding="utf-8")
    try:
        return document.parse(text, 0)
    except GPULeaseError as error:  # of several documents: which
        raise GPULeaseError(
            error.reason,
            f"{file}: {error.sentence}",
            next_step=f"{error.next_step} gpulease policy check {file} names every mistake.",
            numbers=error.numbers,
        ) from error


def _made(given: Sequence[str]) -> tuple[Device, ...]:
    from gpulease.policy.model import Device

    found = []
    for text in given:
        read = _DEVICES.fullmatch(text)
        if read is None or (read["each"] and not int(read["each"])):
            raise _bad("--devices", f"{text!r} is none: write POOL=N or POOL=NODESxGPUS.")
        pool, count = read["pool"], int(read["count"])
        nodes, each = (count, int(read["each"])) if read["each"] else (1, count)
        found += [
            Device(f"{pool}-{node:04}-{number:03}", pool, node=f"{pool}-{node:04}")
            for node in range(nodes)
            for number in range(each)
        ]
    return tuple(found)


def _usable(file: Path) -> AbstractContextManager[None]:
    return usable(file, "used", "Give the path of a file that you may use.")


def _bad(option: str, step: str) -> GPULeaseError:
    return GPULeaseError("bad_option", f"{option} does not fit.", next_step=step)
