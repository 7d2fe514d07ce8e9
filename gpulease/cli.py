"""The ``gpulease`` command: parses arguments and hands over to the room that does the work."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from gpulease import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    parser = argparse.ArgumentParser(prog="gpulease", description="Ephemeral GPU leases.")
    parser.add_argument("--version", action="version", version=f"gpulease {__version__}")
    subcommands = parser.add_subparsers(dest="command", required=True)
    for add in _COMMANDS:
        add(subcommands)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    return run(arguments)


#: Each adds its parser and sets ``run``; heavy imports happen inside ``run``.
_COMMANDS: list[Callable[[argparse._SubParsersAction[argparse.ArgumentParser]], None]] = []
