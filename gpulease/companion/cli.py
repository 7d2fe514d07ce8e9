"""The subcommands ``companion``, a lease by hand without a hub, and ``launch``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpulease.companion import launch


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommands; nothing heavy is imported until one runs."""
    parser = commands.add_parser(
        "companion",
        help="run GPU cells for a notebook elsewhere, without a hub",
        description=(
            "Starts companions on this machine for notebooks that run `%gpu connect FILE`. FILE"
            " holds a key: keep it private. Ctrl-C ends every process that it started."
        ),
    )
    parser.add_argument(
        "--connection-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="write here what `%%gpu connect FILE` needs; removed at the end",
    )
    parser.add_argument("--ip", default="127.0.0.1", help="address of this machine to listen on")
    parser.add_argument("--park-dir", default="", help="where values may be parked at the end")
    parser.set_defaults(run=_run, standby=False, pod=False)
    launcher = commands.add_parser(
        "launch",
        help="in a GPU cell: run one command on every node of the lease",
        description="Runs a command once for each node of this GPU cell's lease, with the variables"
        " that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...) and"
        " torchrun's own options (PET_*), so that `gpulease launch torchrun train.py` needs none."
        " When one process fails, the others get SIGTERM and five seconds later SIGKILL; the exit"
        " status is its own (128 and the signal's number where one ended it).",
    )
    launch.add_arguments(launcher)
    launcher.set_defaults(run=launch.run)


def _run(arguments: argparse.Namespace) -> int:
    from gpulease.companion.run import run
    from gpulease.companion.standalone import check_paths

    check_paths(arguments.connection_file, arguments.park_dir)
    return run(arguments, watch_parent=False)
