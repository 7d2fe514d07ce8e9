"""``gpulease admin``: what an administrator does from a terminal.

Address and token come from the environment, else from what ``login`` kept (never from the command
line, which others on the machine can read).  The service decides what may be done.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpulease.client import ServiceClient
from gpulease.commands import database, service_client
from gpulease.commands.service_client import checked, client_of
from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol
from gpulease.protocol.service import LeaseView
from gpulease.system.terminal import say, table

if TYPE_CHECKING:
    _Parsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_COLUMNS = ("ID", "USER", "SERVER", "CLASS", "STATE", "UTILISATION", "SINCE")
#: Seconds between two looks at a node that is being drained.
_LOOK_SECONDS = 1.0


def add_parsers(commands: _Parsers) -> None:
    """Add the command with its actions."""
    parser = commands.add_parser(
        "admin",
        help="see, explain and end leases; back up, restore, export, forget",
        description="Talks to a running service. Its address comes from --url or"
        " GPULEASE_SERVICE_URL, the token (with custom:gpulease:admin) from GPULEASE_TOKEN or"
        " JUPYTERHUB_API_TOKEN, what is missing from the file that `login` wrote; never from the"
        " command line, where others can read it. backup, restore, export and forget work on the"
        " database itself.",
    )
    parser.add_argument("--url", help="the service's address, ending in /services/gpulease/")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = _action(actions, "list", "list leases")
    listing.add_argument("--ended", action="store_true", help="ended ones too")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=run)
    end = _action(
        actions, "end", "end a lease, or all of a group (custom:gpulease:reserve for it is enough)"
    )
    which = end.add_mutually_exclusive_group(required=True)
    which.add_argument("lease", nargs="?", metavar="LEASE", help="the lease's id")
    which.add_argument("--group", help="every lease and request of its members but your own")
    end.add_argument("--reason", required=True, help="what its holder will read")
    end.set_defaults(run=run)
    why = _action(actions, "why", "show what was decided about a lease or request, and from what")
    why.add_argument("lease", metavar="LEASE", help="the id of the lease or request")
    why.add_argument("--last", type=int, default=20, metavar="N", help="number of decisions")
    why.add_argument("--json", action="store_true", help="print JSON")
    why.set_defaults(run=run)
    for name, does in (
        ("pause", "grant nothing more of a pool; what runs keeps running, the queue is kept"),
        ("resume", "grant again"),
    ):
        found = _action(actions, name, does, "Saves a version of the policy.")
        found.add_argument("--pool", default="", help="one pool; all of them otherwise")
        found.set_defaults(run=run)
    for name, does in (
        ("drain", "warn and drain the leases of a node, which takes nothing new"),
        ("undrain", "let a node take leases again"),
    ):
        found = _action(actions, name, does, "Saves a version of the policy.")
        found.add_argument("node", metavar="NODE", help="its name in the cluster")
        if name == "drain":
            found.add_argument("--wait", action="store_true", help="until no lease is left there")
        found.set_defaults(run=run)
    for name, does in (
        ("login", "ask for a token, try it, and keep it in ~/.config/gpulease/admin.json"),
        ("logout", "remove what login kept"),
    ):
        _action(actions, name, does).set_defaults(run=run)
    database.add_parsers(actions)


def _action(actions: _Parsers, name: str, does: str, more: str = "") -> argparse.ArgumentParser:
    said = f"{does[0].upper()}{does[1:]}. {more}".rstrip()
    return actions.add_parser(name, help=does, description=said)


def run(arguments: argparse.Namespace) -> int:
    """Do what ``arguments.action`` says; return the exit status.

    Raises:
        GPULeaseError: the service's refusal, ``no_service`` or ``no_token``.
    """
    if arguments.action == "login":
        return _log_in(arguments.url)
    if arguments.action == "logout":
        say("Removed." if service_client.forget_login() else "Nothing was kept.")
        return 0
    asyncio.run(_ACTIONS[arguments.action](client_of(arguments.url), arguments))
    return 0


async def _list(client: ServiceClient, arguments: argparse.Namespace) -> None:
    leases = await client.leases(state="" if arguments.ended else "live")
    if arguments.json:
        say(json.dumps(leases, indent=2))
    else:
        say(table([_COLUMNS, *map(_row, leases)]) if leases else "There are no leases.")


async def _end(client: ServiceClient, arguments: argparse.Namespace) -> None:
    if arguments.group:
        ended = await client.end_group(arguments.group, arguments.reason)
        said = [f"{each['id']}: {each['user']}: {each['sentence']}" for each in ended]
        say("\n".join(said) or f"Nobody else of {arguments.group} has a GPU or waits for one.")
        return
    lease = await client.end(arguments.lease, arguments.reason)
    say(f"{lease['id']}: {lease['sentence']}")


async def _why(client: ServiceClient, arguments: argparse.Namespace) -> None:
    found = await client.decisions(arguments.lease, arguments.last)
    say(json.dumps(found, indent=2) if arguments.json else _story(found))


async def _pause(client: ServiceClient, arguments: argparse.Namespace) -> None:
    """Write it into the policy, where everybody sees it and a restart finds it."""
    from gpulease.policy import document
    from gpulease.policy.document.edit import with_paused

    pool, paused = arguments.pool, arguments.action == "pause"
    found = await client.call("GET", "policy")
    before = document.parse(found["text"], found["version"])
    names = [each.name for each in before.pools]
    if pool and pool not in names:
        raise GPULeaseError(
            "unknown_pool",
            f"There is no pool {pool!r}.",
            next_step=f"Name one of: {', '.join(names)}.",
        )
    chosen = [pool] if pool else names
    if all(each.paused is paused for each in before.pools if each.name in chosen):
        already = "is paused already" if paused else "is not paused"
        say(f"Nothing to do: {', '.join(chosen)} {already}.")
        return
    text = with_paused(found["text"], chosen, paused)
    written = "; ".join(f"paused: {str(paused).lower()} at pools: {each}" for each in chosen)
    await _save(client, text, found["version"], written)
    pools = ", ".join(chosen)
    if paused:
        say(
            f"No more GPUs of {pools} are granted. Running leases continue; waiting requests keep"
            " their place."
        )
    else:
        say(f"GPUs of {pools} are granted again.")


async def _drain(client: ServiceClient, arguments: argparse.Namespace) -> None:
    """Let a node take nothing new and its leases leave; say what happens there, and to whom.

    It is written into the policy: no right on the cluster's nodes is needed, and a restart of the
    service finds it.
    """
    node = arguments.node
    devices = (await client.call("GET", "devices"))["items"]
    nodes = sorted({each["node"] for each in devices if each["node"]})
    if node not in nodes:
        there = f"Name one of: {', '.join(nodes)}." if nodes else "There are none here."
        raise GPULeaseError("unknown_node", f"No node {node!r} offers a GPU.", next_step=there)
    if not await _set_drained(client, node, drained=True):
        say(f"{node} was drained already.")
    for line in _held_on(node, devices):
        say(line)
    if arguments.wait:
        while _leases_on(node, devices):
            await asyncio.sleep(_LOOK_SECONDS)
            devices = (await client.call("GET", "devices"))["items"]
        say(f"No lease is left on {node}.")
    say(f"Other pods still go there: `kubectl drain {node}` is for those. When it is back:")
    say(f"    gpulease admin undrain {node}")


async def _undrain(client: ServiceClient, arguments: argparse.Namespace) -> None:
    node = arguments.node
    changed = await _set_drained(client, node, drained=False)
    said = "grants GPUs again; who was only warned stays." if changed else "was not drained."
    say(f"{node} {said}")


async def _set_drained(client: ServiceClient, node: str, *, drained: bool) -> bool:
    """Save it in the policy; return whether that changed anything."""
    from gpulease.policy import document
    from gpulease.policy.document.edit import with_drained

    found = await client.call("GET", "policy")
    before = document.parse(found["text"], found["version"]).drained_nodes
    if (node in before) is drained:
        return False
    after = (*before, node) if drained else tuple(each for each in before if each != node)
    written = f"drained_nodes: [{', '.join(after)}]"
    await _save(client, with_drained(found["text"], after), found["version"], written)
    return True


async def _save(client: ServiceClient, text: str, version: int, written: str) -> None:
    """Save a changed policy; ``written``: what to write by hand where it comes from a file.

    Raises:
        GPULeaseError: the service's refusal.
    """
    try:
        await client.call("PUT", "policy", {"text": text, "base_version": version})
    except GPULeaseError as error:
        if error.reason != "policy_pinned":
            raise
        raise GPULeaseError(
            error.reason,
            error.sentence,
            next_step=f"Write there {written}: it counts a few seconds later.",
            status=error.status,
        ) from error


def _leases_on(node: str, devices: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the leases that hold devices of a node, each with its user."""
    return {
        each["lease"]: each["user"] for each in devices if each["node"] == node and each["lease"]
    }


def _held_on(node: str, devices: Sequence[Mapping[str, str]]) -> Iterator[str]:
    held = _leases_on(node, devices)
    if not held:
        yield f"{node} takes nothing new. No lease is on it."
        return
    leases = "lease is" if len(held) == 1 else "leases are"
    yield f"{node} takes nothing new. {len(held)} {leases} warned now and brought home:"
    yield from (f"    {lease}  {user}" for lease, user in sorted(held.items()))


_ACTIONS: Final[
    Mapping[str, Callable[[ServiceClient, argparse.Namespace], Coroutine[Any, Any, None]]]
] = {
    "list": _list,
    "end": _end,
    "why": _why,
    "pause": _pause,
    "resume": _pause,
    "drain": _drain,
    "undrain": _undrain,
}


def _log_in(given: str | None) -> int:
    """Ask for address and token, try them, and keep them."""
    url = checked(given or os.environ.get(protocol.ENV_SERVICE_URL) or _ask("Address: "))
    token = getpass.getpass("Token (the hub's Token page makes one): ").strip()
    asyncio.run(ServiceClient(url, token).call("GET", "leases?limit=1"))
    say(f"Kept in {service_client.keep_login(service_client.Login(url, token))}.")
    return 0


def _ask(question: str) -> str:
    return input(question).strip()


def _story(decisions: list[dict[str, Any]]) -> str:
    """Return what was decided, oldest first, each with what it was decided from."""
    lines = []
    for each in decisions:
        at = f"{datetime.fromisoformat(each['at']).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        moved = f"{each['from'] or 'asked'} -> {each['to']}"
        lines.append(f"{at}  {moved}: {each['why']} (by {each['who']})")
        lines += [f"    {words}" for words in (*each["inputs"], each["note"]) if words]
        if each["planned"] and not each["inputs"]:
            lines.append("    What it was decided from is not kept any more.")
    return "\n".join(lines) or "Nothing was decided about it."


def _row(lease: LeaseView) -> tuple[str, ...]:
    use = lease["utilisation"]
    return (
        lease["id"],
        lease["user"],
        lease["server"] or "(default)",
        f"{lease['gpu_class']} x{lease['count']}",
        lease["state"],
        "no data" if use is None else f"{use:.0%}",
        lease["active_since"] or lease["created"],
    )
