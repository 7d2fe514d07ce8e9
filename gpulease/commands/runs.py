"""``gpulease submit`` and ``gpulease runs``: whole notebooks that run in the background.

Address and token come from where ``admin`` has them; a notebook server's terminal has both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpulease.client import ServiceClient
from gpulease.commands.service_client import client_of
from gpulease.errors import GPULeaseError
from gpulease.runs import submission
from gpulease.sizes import parse_duration
from gpulease.system.terminal import say, table

_COLUMNS = ("ID", "ARRAY", "NOTEBOOK", "STATE", "CELLS", "SINCE", "")
#: Seconds between two looks of ``--wait``.
_LOOK = 2.0


def add_parsers(commands: Any) -> None:
    """Add ``submit`` and ``runs``."""
    submit = commands.add_parser(
        "submit",
        help="run a whole notebook without you, its GPU cells when there is a GPU",
        description="The notebook runs in a server of its own, also after yours has ended, and is"
        " written with its output beside the source after every cell. Address and token are there"
        " in a terminal of your notebook server; elsewhere `gpulease admin login` keeps them.",
    )
    submission.add_arguments(submit)
    submit.add_argument("--wait", action="store_true", help="until it has ended; 1 if it failed")
    runs = commands.add_parser(
        "runs", help="see and cancel your runs", description="Lists your runs, or acts on one."
    )
    actions = runs.add_subparsers(dest="action", metavar="ACTION")
    for name, does in (
        ("show", "Show one run."), ("log", "Show what happened."), ("cancel", "End a run."),
    ):  # fmt: skip
        action = actions.add_parser(name, help=does, description=does)
        whose = "the run's id" if name == "log" else "the id of a run, or of an array"
        action.add_argument("run_id", metavar="RUN", help=whose)
        _add_common(action, default=argparse.SUPPRESS)  # else it would undo what stands before it
    for each in (submit, runs):
        _add_common(each)
    submit.set_defaults(run=_submit)
    runs.set_defaults(run=_runs)


def _add_common(parser: argparse.ArgumentParser, **more: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON", **more)
    parser.add_argument(
        "--url", help="the service's address, ending in /services/gpulease/", **more
    )


def _submit(arguments: argparse.Namespace) -> int:
    body = submission.body(arguments, Path.cwd(), _seconds)
    return asyncio.run(_submitted(client_of(arguments.url), body, arguments))


async def _submitted(
    client: ServiceClient, body: dict[str, Any], arguments: argparse.Namespace
) -> int:
    runs = (await client.call("POST", "runs", body))["items"]
    if not arguments.json:
        say(submission.said(runs, submission.advice(body)))
    if arguments.wait:
        runs = [await _ended(client, run["id"]) for run in runs]
        if not arguments.json:
            say("\n".join(_line(run) for run in runs))
    if arguments.json:
        say(json.dumps(runs, indent=2))
    failed = any(run["outcome"] != "succeeded" for run in runs)
    return 1 if arguments.wait and failed else 0


async def _ended(client: ServiceClient, run_id: str) -> dict[str, Any]:
    while True:
        try:
            run: dict[str, Any] = await client.call("GET", _path(run_id))
        except GPULeaseError as error:
            if error.status < 500:
                raise
        else:
            if run["state"] == "ended":
                return run
        await asyncio.sleep(_LOOK)


def _runs(arguments: argparse.Namespace) -> int:
    return asyncio.run(_do(client_of(arguments.url), arguments))


async def _do(client: ServiceClient, arguments: argparse.Namespace) -> int:
    if arguments.action is None:
        found = (await client.call("GET", "runs?mine=1&limit=200"))["items"]
        text = _table(found) if found else "There are no runs."
    elif arguments.action == "log":
        found = (await client.call("GET", f"{_path(arguments.run_id)}/events"))["items"]
        text = "\n".join(
            " ".join((_utc(each["at"]), each["sentence"], each["note"])).rstrip() for each in found
        )
    else:
        cancels = arguments.action == "cancel"
        found = await _one_or_array(client, arguments.run_id, "DELETE" if cancels else "GET")
        text = _line(found) if isinstance(found, dict) else _table(found)
    say(json.dumps(found, indent=2) if arguments.json else text)
    return 0


async def _one_or_array(client: ServiceClient, name: str, method: str) -> Any:
    """Return a run, or every run of an array, after what ``method`` does to it."""
    body: dict[str, Any] | None = {} if method == "DELETE" else None
    try:
        return await client.call(method, _path(name), body)
    except GPULeaseError as error:
        if error.reason != "no_such_run":
            raise
        runs = (await client.call("GET", "runs?mine=1&limit=200"))["items"]
        array = [run["id"] for run in runs if run["array"] == name]
        if not array:
            raise
    return [await client.call(method, _path(each), body) for each in array]


def _seconds(text: str) -> float:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise GPULeaseError(
            "bad_option", f"--for: {error}.", next_step="Write 30m, or 2h."
        ) from None
    if not found:
        raise GPULeaseError(
            "bad_option", "--for: a GPU for no time is none.", next_step="Write 30m, or 2h."
        )
    return found


def _path(run_id: str) -> str:
    return f"runs/{quote(run_id, safe='')}"


def _line(run: dict[str, Any]) -> str:
    said = (f"{run['id']}:", run["sentence"], run["gpu"], run["next_step"])
    return " ".join(each for each in said if each)


def _utc(moment: str) -> str:
    return f"{moment[:10]} {moment[11:19]} UTC"  # the service gives times in UTC


def _table(runs: list[dict[str, Any]]) -> str:
    rows = [
        (
            run["id"],
            run["array"] or "",
            Path(run["notebook"]).name + ("" if run["index"] is None else f" [{run['index']}]"),
            run["outcome"] or run["state"],
            f"{run['done']}/{run['cells']}" if run["cells"] else "",
            _utc(run["ended"] or run["started"] or run["created"]),
            run["gpu"] or run["sentence"],
        )
        for run in runs
    ]
    if not any(run["array"] for run in runs):
        return table([each[:1] + each[2:] for each in (_COLUMNS, *rows)])
    return table([_COLUMNS, *rows])
