"""What ``gpulease admin`` does to the database itself: back up, restore, export, forget."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from gpulease.commands.files import usable
from gpulease.errors import GPULeaseError
from gpulease.sizes import say_count
from gpulease.system.private_files import UMASK
from gpulease.system.terminal import say

#: Where the address comes from when no option says it: an address may hold a password.
ENV_DATABASE = "DATABASE_URL"


def add_parsers(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the four commands to those of ``gpulease admin``."""
    backup = _add(actions, "backup", "Copy the database to a file, also while it is used.")
    backup.add_argument("file", type=Path, metavar="FILE", help="a new file; it gets mode 0600")
    restore = _add(actions, "restore", "Fill a database from a backup (stop the service first).")
    restore.add_argument("file", type=Path, metavar="FILE", help="the backup")
    restore.add_argument("--replace", action="store_true", help="replace what is in it")
    export = _add(actions, "export", "Print all that is stored about a person, as JSON.")
    export.add_argument("user", metavar="USER", help="the person")
    forget = _add(
        actions, "forget", "Replace a person's name by a pseudonym (stop the service first)."
    )
    forget.add_argument("user", metavar="USER", help="the person")
    for parser in (backup, restore, export, forget):
        parser.add_argument(
            "--database",
            metavar="URL",
            help=f"the database's address; by default what {ENV_DATABASE} says, where a password"
            " is better kept",
        )
        parser.set_defaults(run=run)


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, does: str
) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=does, description=does)


def run(arguments: argparse.Namespace) -> int:
    """Do it; return the exit status.

    Raises:
        GPULeaseError: what the store refuses with, ``no_database``, ``unreadable_file``.
    """
    os.umask(UMASK)
    step = "Name a file in a folder that you may write, or a backup that is there."
    with usable(getattr(arguments, "file", Path()), "used", step):
        say(_do(arguments, address_of(arguments.database)))
    return 0


def _do(arguments: argparse.Namespace, address: str) -> str:
    from gpulease import store
    from gpulease.store import people

    if arguments.action == "backup":
        rows = store.backup(address, arguments.file)
        kept = f"{say_count(rows, 'row is', 'rows are')} in {arguments.file}"
        return f"{kept}. The service's key file is not among them."
    if arguments.action == "restore":
        rows = store.restore(address, arguments.file, replace=arguments.replace)
        restored = say_count(rows, "row was", "rows were")
        return f"{restored} restored. Leases that run and are not among them are adopted."
    if arguments.action == "export":
        with store.reading(address) as session:
            return json.dumps(people.export(session, arguments.user), indent=2)
    opened = store.Store.open(address)
    try:
        pseudonym, number = opened.write(people.forget, arguments.user)
    finally:
        opened.close()
    return (
        f"{say_count(number, 'lease', 'leases')} of {arguments.user} "
        f"{'is' if number == 1 else 'are'} under {pseudonym} now."
    )


def address_of(given: str | None) -> str:
    """Return the database that an option or the environment names.

    Raises:
        GPULeaseError: ``no_database``.
    """
    found = given or os.environ.get(ENV_DATABASE, "")
    if not found:
        raise GPULeaseError(
            "no_database",
            "It is not known which database.",
            next_step=f"Give --database, or set {ENV_DATABASE}.",
        )
    return found
