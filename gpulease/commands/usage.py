"""``gpulease usage`` and ``gpulease projects``: what was used, and what is left.

The tables are printed or written to a file.  The service decides whose use a person may see.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gpulease.commands.files import usable
from gpulease.errors import GPULeaseError
from gpulease.system.terminal import csv_text, say, table

_FIGURES = ("hours", "gpu_hours", "estimated")
#: What stands in a table where there is none.
_NONE = {"project": "(none)"}
_WRITABLE = "Give a path in a folder that is there and that you may write to."
#: What the numbers of a Parquet file's columns are.
_UNITS = {"hours": "hours of one GPU", "gpu_hours": "GPU-hours at its price"}


def add_parsers(commands: Any) -> None:
    """Add both commands to the command line's."""
    usage = commands.add_parser(
        "usage",
        help="what was used, by project, person, class and day",
        description="Hours of GPUs and what they cost, also of what runs now: your own, of projects"
        " that you lead, as an admin everybody's. estimated marks what ended unseen. Address and"
        " token are found as for `gpulease admin`.",
    )
    usage.add_argument("--url", help="the service's address, ending in /services/gpulease/")
    usage.add_argument(
        "--by", default="project", help="some of project, person, class, day, with commas"
    )
    usage.add_argument(
        "--since", metavar="DAY", help="first day, as 2026-10-01; by default 30 days ago"
    )
    usage.add_argument("--until", metavar="DAY", help="last day")
    usage.add_argument("--zone", default="UTC", help="whose days these are")
    out = usage.add_mutually_exclusive_group()
    out.add_argument("--json", action="store_true", help="print JSON")
    out.add_argument("--csv", type=Path, metavar="FILE", help="write CSV")
    out.add_argument(
        "--parquet", type=Path, metavar="FILE", help="write Parquet (gpulease[parquet])"
    )
    usage.set_defaults(run=run_usage)
    projects = commands.add_parser(
        "projects",
        help="what each project has and may still spend",
        description="What each project holds, is guaranteed and may hold in each pool, and what"
        " you may still spend of its budget. Address and token are found as for `gpulease admin`.",
    )
    projects.add_argument("--url", help="the service's address, ending in /services/gpulease/")
    projects.add_argument("--json", action="store_true", help="print JSON")
    projects.set_defaults(run=run_projects)


def run_usage(arguments: argparse.Namespace) -> int:
    """Print or write what was used; return the exit status.

    Raises:
        GPULeaseError: the service's refusal, ``no_service``, ``no_token``, ``no_pyarrow``,
            ``unreadable_file``.
    """
    from gpulease.commands.service_client import client_of

    asked = {name: getattr(arguments, name) for name in ("by", "since", "until", "zone")}
    written = None if arguments.parquet is None else _pyarrow()  # before anything is asked
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    found = asyncio.run(client_of(arguments.url).call("GET", f"usage?{query}"))
    rows: list[dict[str, Any]] = found["items"]
    columns = [*arguments.by.split(","), *_FIGURES]
    if arguments.json:
        say(json.dumps(found, indent=2))
    elif arguments.csv is not None:
        cells = ([row[name] for name in columns] for row in rows)
        with usable(arguments.csv, "written", _WRITABLE):
            arguments.csv.write_text(csv_text(columns, cells), encoding="utf-8", newline="")
    elif written is not None:
        said = {"since": found["since"], "until": found["until"], "zone": arguments.zone}
        with usable(arguments.parquet, "written", _WRITABLE):
            _write_parquet(written, arguments.parquet, columns, rows, said)
    else:
        shown = ([_cell(row[name]) or _NONE.get(name, "") for name in columns] for row in rows)
        say(table([columns, *shown]) if rows else "Nothing was used in these days.")
        for name, hours in found["warm"].items():
            say(f"Pods that stood ready for {name}, charged to nobody: {hours:.2f} GPU hours.")
    return 0


def run_projects(arguments: argparse.Namespace) -> int:
    """Print how projects stand; return the exit status.

    Raises:
        GPULeaseError: the service's refusal, ``no_service``, ``no_token``.
    """
    from gpulease.commands.service_client import client_of

    items = asyncio.run(client_of(arguments.url).call("GET", "projects"))["items"]
    if arguments.json:
        say(json.dumps(items, indent=2))
        return 0
    rows = [["PROJECT", "POOL", "HELD", "GUARANTEE", "SHARE", "WAITING", "BUDGET LEFT"]]
    for item in items:
        budget = item["budget"]
        left = f"{budget['left']:g} of {budget['of']:g}" if budget else ""
        for pool, share in item["pools"].items():
            figures = [str(share[name]) for name in ("held", "guarantee", "share", "waiting")]
            rows.append([item["name"], pool, *figures, left])
    say(table(rows) if len(rows) > 1 else "There are no projects.")
    return 0


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise GPULeaseError(
            "no_pyarrow",
            "Parquet is written by pyarrow, which is not installed here.",
            next_step="Install gpulease[parquet], or write --csv FILE.",
        ) from None


def _write_parquet(
    pyarrow: Any, file: Path, columns: list[str], rows: list[dict[str, Any]], said: dict[str, str]
) -> None:
    """Write columns of their own types with their units, also where there is no row.

    ``said``: what the file says of itself.
    """
    types = {"day": pyarrow.date32(), "estimated": pyarrow.bool_()}
    types |= dict.fromkeys(_UNITS, pyarrow.float64())
    fields = [
        pyarrow.field(
            name,
            types.get(name, pyarrow.string()),
            metadata={"unit": _UNITS[name]} if name in _UNITS else None,
        )
        for name in columns
    ]
    if "day" in columns:
        rows = [{**row, "day": date.fromisoformat(row["day"])} for row in rows]
    found = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(fields, metadata=said))
    importlib.import_module("pyarrow.parquet").write_table(found, file)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
