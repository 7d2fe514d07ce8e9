"""The ``gpulease demo`` command: its arguments, and running what they ask for."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from gpulease.companion import tree
from gpulease.demo import launch
from gpulease.demo.options import DemoOptions
from gpulease.system import terminal
from gpulease.system.private_files import UMASK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the demo's options."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="do the whole round unattended and report: exit status 0 when it works",
    )
    parser.add_argument("--port", type=int, help="public port; 0 is any free one (8000 if free)")
    parser.add_argument(
        "--dir", type=Path, help="keep all state here (otherwise a temporary directory)"
    )
    parser.add_argument(
        "--gpus", type=int, default=2, help="simulated GPUs, on a machine without an NVIDIA driver"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="simulate GPUs even where a driver is"
    )
    parser.add_argument(
        "--gpu-name", default="Simulated GPU", metavar="NAME",
        help="what simulated GPUs are called; several names with commas, in turn",
    )  # fmt: skip
    parser.add_argument("--memory", type=float, default=16.0, help="GiB of a simulated GPU")
    seconds = parser.add_argument_group("time-outs in seconds (an admin can change them later)")
    for name, default, text in (
        ("idle", None, "idle time until the warning (60; with --check 6)"),
        ("warning", None, "from the warning to the release (20; with --check 4)"),
        ("warm-up", None, "first part of a lease, not counted as idle (5; with --check 1)"),
        ("quiet", 600.0, "time of a cell without GPU use until the warning"),
        ("drain", 30.0, "bound of copying variables back"),
        ("wait", 300.0, "how long a %%%%gpu cell waits in the queue"),
    ):
        seconds.add_argument(f"--{name}", type=float, default=default, metavar="S", help=text)


def options_from(arguments: argparse.Namespace, directory: Path) -> DemoOptions:
    """Return the demo that the arguments describe.

    Raises:
        GPULeaseError: ``bad_option`` or ``port_taken``.
    """
    short = arguments.check
    port = arguments.port
    if port is None and short:
        port = 0  # a check never takes the port that a demo is likely to want
    return DemoOptions(
        directory=directory,
        ports=launch.choose_ports(port),
        gpus=arguments.gpus,
        simulate=arguments.simulate,
        gpu_name=arguments.gpu_name,
        memory=arguments.memory,
        idle=_or(arguments.idle, 6.0 if short else 60.0),
        warning=_or(arguments.warning, 4.0 if short else 20.0),
        warm_up=_or(arguments.warm_up, 1.0 if short else 5.0),
        quiet=arguments.quiet,
        drain=arguments.drain,
        wait=arguments.wait,
    ).check()


def run(arguments: argparse.Namespace) -> int:
    """Run the demo until it is told to end, or the check; return the exit status."""
    launch.require_linux()
    os.umask(UMASK)  # people's notebooks, the hub's database and the log are nobody else's
    tree.become_subreaper()
    options_from(arguments, Path())  # refuse before anything is made
    with launch.directory(arguments.dir) as place, launch.ends_on_signal():
        options = options_from(arguments, place.path)
        demo = launch.Demo(options, _say)
        try:
            status = _run(demo, options, check=arguments.check)
            place.keep = status != 0
        except launch.InterruptedBySignalError:
            _say("ending every process ...")
            place.keep = False
            status = 130 if arguments.check else 0
        finally:
            launch.ignore_signals()
            left = demo.stop()
            if left:
                _say(f"still there: {sorted(left)}")
        return status


def _run(demo: launch.Demo, options: DemoOptions, *, check: bool) -> int:
    demo.start()
    if check:
        from gpulease.demo.check import check_demo

        return check_demo(options, _say)
    terminal.say(launch.welcome(options).rstrip("\n"))
    sys.stdout.flush()
    demo.wait()
    raise AssertionError("unreachable")


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _say(text: str) -> None:
    terminal.say(f"{time.strftime('%H:%M:%S')}  {text}")
    sys.stdout.flush()
