"""``gpulease admin``: what an administrator does from a terminal.

Owns the table that is printed and where address and token come from: the environment, else what
``login`` kept (never the command line, which others on the machine can read).  What may be done is
the service's word.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import os
from typing import Any
from urllib.parse import urlsplit

from gpulease import login, protocol
from gpulease.client import Client
from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.document.edit import with_paused
from gpulease.protocol import LeaseView
from gpulease.terminal import say, table

_COLUMNS = ("ID", "USER", "SERVER", "CLASS", "STATE", "UTILISATION", "SINCE")


def run(arguments: argparse.Namespace) -> int:
    """Do what ``arguments.action`` says; return the exit status.

    Raises:
        GPULeaseError: the service's refusal, ``no_service`` or ``no_token``.
    """
    if arguments.action == "login":
        return _log_in(arguments.url)
    if arguments.action == "logout":
        say("Removed." if login.forget() else "Nothing was kept.")
        return 0
    client = client_of(arguments.url)
    if arguments.action == "end":
        lease = asyncio.run(client.end(arguments.lease, arguments.reason))
        say(f"{lease['id']}: {lease['sentence']}")
        return 0
    if arguments.action == "why":
        found = asyncio.run(client.decisions(arguments.lease, arguments.last))
        say(json.dumps(found, indent=2) if arguments.json else _story(found))
        return 0
    if arguments.action in ("pause", "resume"):
        say(asyncio.run(_pause(client, arguments.pool, paused=arguments.action == "pause")))
        return 0
    leases = asyncio.run(client.leases(state="" if arguments.ended else "live"))
    if arguments.json:
        say(json.dumps(leases, indent=2))
    else:
        say(table([_COLUMNS, *map(_row, leases)]) if leases else "There are no leases.")
    return 0


async def _pause(client: Client, pool: str, *, paused: bool) -> str:
    """Write it into the policy, where everybody sees it and a restart finds it."""
    found = await client.call("GET", "policy")
    before = document.parse(found["text"], found["version"])
    names = [each.name for each in before.pools]
    if pool and pool not in names:
        raise GPULeaseError(
            "unknown_pool", f"There is no pool {pool!r}.", next_step=f"Name one of: {names}."
        )
    chosen = [pool] if pool else names
    if all(each.paused is paused for each in before.pools if each.name in chosen):
        return f"Nothing to do: {', '.join(chosen)}."
    text = with_paused(found["text"], chosen, paused)
    await client.call("PUT", "policy", {"text": text, "base_version": found["version"]})
    what = "Nothing is granted any more of" if paused else "GPUs are granted again of"
    return f"{what} {', '.join(chosen)}."


def client_of(given: str | None, *, timeout: float = 30.0) -> Client:
    """Return the client of the service that is named here or in the environment.

    ``timeout``: seconds that one call may take.

    Raises:
        GPULeaseError: ``no_service``, ``no_token``, ``bad_option``.
    """
    kept = login.read()
    url = given or os.environ.get(protocol.ENV_SERVICE_URL) or kept.url
    token = os.environ.get("GPULEASE_TOKEN", "")
    if not token and kept.token and same_service(url, kept.url):
        token = kept.token  # a token is shown to no other service than the one it was given for
    token = token or os.environ.get("JUPYTERHUB_API_TOKEN", "")
    if not url:
        raise GPULeaseError(
            "no_service",
            "It is not known where the lease service is.",
            next_step=f"`gpulease admin login --url URL` keeps it; or set"
            f" {protocol.ENV_SERVICE_URL}.",
        )
    if not token:
        raise GPULeaseError(
            "no_token",
            "There is no token to prove who you are.",
            next_step="Make one on the hub's Token page; `gpulease admin login` asks for it.",
        )
    return Client(_checked(url), token, timeout=timeout)


def same_service(one: str, other: str) -> bool:
    """Say whether two addresses are of the same service."""
    return one.rstrip("/") == other.rstrip("/")


def _log_in(given: str | None) -> int:
    """Ask for address and token, try them, and keep them."""
    url = _checked(given or os.environ.get(protocol.ENV_SERVICE_URL) or _ask("Address: "))
    token = getpass.getpass("Token (the hub's Token page makes one): ").strip()
    asyncio.run(Client(url, token).call("GET", "leases?limit=1"))
    say(f"Kept in {login.keep(login.Login(url, token))}.")
    return 0


def _ask(question: str) -> str:
    return input(question).strip()


def _checked(url: str) -> str:
    """Return the address itself.

    Raises:
        GPULeaseError: ``bad_option``: it is none.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, a bracket that stays open
        fits = False
    if not fits:
        raise GPULeaseError(
            "bad_option",
            f"{url!r} is not an address of the lease service.",
            next_step="Give one such as https://hub.example.org/services/gpulease/.",
        )
    return url


def _story(decisions: list[dict[str, Any]]) -> str:
    """Return what was decided, oldest first, each with what it was decided from."""
    lines = []
    for each in decisions:
        at = each["at"].partition(".")[0].replace("T", " ")
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
