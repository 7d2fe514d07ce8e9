"""The ``gpulease`` command: parses arguments and hands over to the room that does the work.

Exit statuses: 0 done, 1 failed, 2 the input was wrong.  Everything heavy is imported by the
subcommand that needs it, so that the base install has a working command too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpulease import __version__
from gpulease.commands import admin, runs, usage
from gpulease.companion import launch
from gpulease.errors import GPULeaseError
from gpulease.gpus.agent import arguments as agent
from gpulease.system.terminal import LINES, plain

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

#: Which extra brings a module that a subcommand needs.
_EXTRA_OF = {
    "aiohttp": "demo",
    "configurable_http_proxy": "demo",
    "grpc": "agent",
    "jupyterhub": "demo",
    "jupyter_server": "lab",
    "nbformat": "lab",
    "pydantic": "service",
    "sqlalchemy": "service",
    "alembic": "service",
    "icalendar": "service",
    "yaml": "service",
}


#: Commands that are modules of their own, with ``add_arguments`` and ``run``: where they are, what
#: they do in a line, and in full.
_MODULES = {
    "demo": (
        "gpulease.demo.command",
        "start a whole hub on this machine and try it; --check does the round by itself",
        "Starts a real JupyterHub with its proxy, the lease service and four people on"
        " free loopback ports, and prints one address. Ctrl-C ends every process that it started.",
    ),
    "simulate": (
        "gpulease.commands.simulate",
        "replay a trace, the recorded history or a scenario under one policy or several",
        "Replays invented or recorded work through the same planner on a virtual "
        "clock, and reports the GPU time held, used and waited for.",
    ),
    "verify": (
        "gpulease.verify.command",
        "run a notebook in a plain kernel and with its cells on the GPU, and compare",
        "Runs a notebook in a plain kernel, and placed in several patterns with a"
        " companion on this machine. Compares what each cell shows and what each variable is, and"
        " says for each difference in which cell it is and what to do. Exit status 0 when there is"
        " none.",
    ),
    "strip": (
        "gpulease.commands.strip",
        "take gpulease's magics out of notebooks, for graders and for people without it",
        "Removes %%gpu, %%cpu, %gpu, %load_ext gpulease and @gpu.run, turns"
        " `with gpu():` into `if True:`, and removes what JupyterLab keeps of GPU cells in the"
        " file. Names each cell that still needs gpulease; exit status 0 when there is none.",
    ),
    "doctor": (
        "gpulease.commands.doctor",
        "check an installation on Kubernetes and say how to fix it",
        "Looks with the lease service's own rights, best in its pod. On one machine"
        " (--config without a cluster) it checks the hubs and the pages, with the service's"
        " environment. Changes nothing: pods are only offered to the API server as a dry run."
        " Exit status 1 when something is wrong.",
    ),
    "support-bundle": (
        "gpulease.commands.support_bundle",
        "collect what support needs, without secrets",
        "Writes versions, settings, what doctor finds, health and metrics; best in the"
        " lease service's pod. Tokens, passwords and keys are removed, and so is every value of 8"
        " characters or more that is not known to be harmless. No name of a person is asked for.",
    ),
    "uninstall": (
        "gpulease.commands.uninstall",
        "take everything of gpulease out of a Kubernetes cluster",
        "Removes everything with gpulease's label in any namespace, running leases "
        "too, with the rights of a cluster's admin. Run `helm uninstall gpulease` first. The hub,"
        " its servers and all homes stay. Without --yes it only lists what would be removed.",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["service"]:  # parses the rest of the line itself
            return _service(words[1:])
        arguments = command_line().parse_args(words)
        run: Callable[[argparse.Namespace], int] = arguments.run
        return run(arguments)
    except GPULeaseError as error:
        _complain(str(error))
        return 2 if error.status in range(400, 500) else 1
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _complain(
            f"{error.name} is not installed. Install it with: pip install 'gpulease[{extra}]'"
        )
        return 2
    except KeyboardInterrupt:
        return 130


def _service(words: list[str]) -> int:
    from gpulease.service.app import main as run_service

    # traitlets parses them with a parser of its own, whose errors repeat them as they are.
    if odd := next((word for word in words if plain(word, kept=LINES) != word), None):
        raise GPULeaseError(
            "bad_option",
            f"{odd} has characters that command a terminal.",
            next_step="Write the option without them.",
        )
    return run_service(words)


class _Parser(argparse.ArgumentParser):
    """Writes out, in its errors, what in an argument would command the terminal."""

    def error(self, message: str) -> NoReturn:
        super().error(plain(message))


def command_line() -> argparse.ArgumentParser:
    """Return the parser of every subcommand; the options of ``service`` are traitlets."""
    parser: argparse.ArgumentParser = _Parser(
        prog="gpulease",
        description="Ephemeral GPU leases for JupyterHub notebooks: the GPU comes and goes, the"
        " variables stay.",
    )
    parser.add_argument("--version", action="version", version=f"gpulease {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_module(commands, "demo")
    commands.add_parser(
        "service",
        help="run the lease service",
        add_help=False,
        description="Runs the lease service. The hub starts it with the right environment"
        " (service_command), or you run it with the same JUPYTERHUB_* variables.",
    )
    launch.add_parsers(commands)
    _add_agent(commands)
    _add_policy(commands)
    _add_reservations(commands)
    for name in ("simulate", "verify", "strip"):
        _add_module(commands, name)
    _add_db(commands)
    admin.add_parsers(commands)
    usage.add_parsers(commands)
    runs.add_parsers(commands)
    for name in ("doctor", "support-bundle", "uninstall"):
        _add_module(commands, name)
    says = "print the version"
    version = commands.add_parser("version", help=says, description=f"{says.capitalize()}.")
    version.set_defaults(run=_version)
    return parser


def _version(_arguments: argparse.Namespace) -> int:
    print(__version__)
    return 0


def _add_module(commands: Commands, name: str) -> None:
    module, says, description = _MODULES[name]
    command = import_module(module)
    parser = commands.add_parser(name, help=says, description=description)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _add_agent(commands: Commands) -> None:
    parser = commands.add_parser(
        "agent",
        help="watch the GPUs of a Kubernetes node and report to the lease service",
        description="Runs on each GPU node. Reads every GPU once a second and posts what it saw in"
        " batches. Waits for a missing driver, kubelet or service, and says so. Needs the"
        " extra agent.",
    )
    agent.add_arguments(parser)
    parser.set_defaults(run=_agent)


def _agent(arguments: argparse.Namespace) -> int:
    from gpulease.gpus.agent.command import run

    return run(arguments)


def _add_policy(commands: Commands) -> None:
    parser = commands.add_parser(
        "policy", help="work with policy documents", description="Works with policy documents."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="validate a policy document, and say what it would change for whom",
        description="Prints each mistake with its line; exit status 0 when there is none. With"
        " --against or --service it says what would change, and for whom; nothing comes into"
        " force. The service's address comes from --url or GPULEASE_SERVICE_URL, the token (with"
        " custom:gpulease:admin) from GPULEASE_TOKEN or JUPYTERHUB_API_TOKEN.",
    )
    check.add_argument("file", type=Path, metavar="FILE", help="a YAML document, or - for stdin")
    beside = check.add_mutually_exclusive_group()
    beside.add_argument("--against", type=Path, metavar="FILE", help="the document it replaces")
    beside.add_argument(
        "--service",
        action="store_true",
        help="compare with the policy of the running service, and say who is affected",
    )
    check.add_argument("--url", help="the service's address, ending in /services/gpulease/")
    check.set_defaults(run=_policy_check)
    _add_whatif(actions)


def _add_whatif(actions: Commands) -> None:
    whatif = actions.add_parser(
        "whatif",
        help="what the last days would have been like under a policy",
        description="Asks a running service to replay its last days under the document. The"
        " address comes from --url or GPULEASE_SERVICE_URL, the token (with"
        " custom:gpulease:admin) from GPULEASE_TOKEN or JUPYTERHUB_API_TOKEN.",
    )
    whatif.add_argument("file", type=Path, metavar="FILE", help="a YAML document, or - for stdin")
    whatif.add_argument("--days", type=float, default=7, help="how many days, 31 at most")
    whatif.add_argument("--json", action="store_true", help="print JSON")
    whatif.add_argument("--url", help="the service's address, ending in /services/gpulease/")
    whatif.set_defaults(run=_policy_whatif)


def _policy_whatif(arguments: argparse.Namespace) -> int:
    from gpulease.commands.simulate import whatif

    return whatif(arguments, _read(arguments.file))


def _policy_check(arguments: argparse.Namespace) -> int:
    from gpulease.commands import policy

    return policy.check(arguments, _read)


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise GPULeaseError(
            "unreadable_file",
            f"{file} cannot be read: {why}.",
            next_step="Give the path of a readable file.",
        ) from error


def _add_reservations(commands: Commands) -> None:
    parser = commands.add_parser(
        "reservations",
        help="reserve GPUs for a group's labs",
        description="Reserves GPUs for a group's labs.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    apply = actions.add_parser(
        "apply",
        help="bring the reservations to what a file says",
        description="Checks the whole file first, and changes nothing unless all of it fits. Exit"
        " status 1 where something does not fit, 2 for mistakes in the file. The address"
        " comes from --url or GPULEASE_SERVICE_URL, the token (with custom:gpulease:reserve for"
        " the group) from GPULEASE_TOKEN or JUPYTERHUB_API_TOKEN.",
    )
    apply.add_argument("file", type=Path, metavar="FILE", help="YAML, or an iCalendar (.ics)")
    apply.add_argument(
        "--dry-run", action="store_true", help="only say what would be done, and what does not fit"
    )
    apply.add_argument(
        "--prune", action="store_true", help="cancel what the file does not name and is not over"
    )
    apply.add_argument("--url", help="the service's address, ending in /services/gpulease/")
    apply.add_argument("--group", help="for an iCalendar that names no group")
    apply.add_argument("--class", dest="gpu_class", help="for one that names no class")
    apply.add_argument("--seats", type=int, help="for one that names no seats")
    apply.add_argument("--zone", help="for one whose times are of no zone, such as Europe/Berlin")
    apply.set_defaults(run=_reservations)


def _reservations(arguments: argparse.Namespace) -> int:
    from gpulease.commands.reservations import run

    return run(arguments)


def _add_db(commands: Commands) -> None:
    parser = commands.add_parser(
        "db",
        help="work with the service's database",
        description="Works with the service's database.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    upgrade = actions.add_parser(
        "upgrade",
        help="bring the database to this version's tables (stop the service first)",
        description="Brings the database to this version's tables. Stop the service first.",
    )
    upgrade.add_argument(
        "--database",
        required=True,
        metavar="URL",
        help="SQLAlchemy URL, for example sqlite:///gpulease.sqlite",
    )
    upgrade.set_defaults(run=_db_upgrade)


def _db_upgrade(arguments: argparse.Namespace) -> int:
    from gpulease.store import upgrade
    from gpulease.system.private_files import UMASK

    os.umask(UMASK)
    upgrade(arguments.database)
    print("The database has this version's tables.")
    return 0


def _complain(text: str) -> None:
    print(f"gpulease: {plain(text, kept=LINES)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
