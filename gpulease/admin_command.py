"""``gpulease admin``: what an administrator does from a terminal.

Owns the table that is printed and where address and token come from (never the command line, which
others on the machine can read).  What may be done is the service's word.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any
from urllib.parse import quote, urlencode

from tornado.httpclient import HTTPClient, HTTPRequest

from gpulease import protocol
from gpulease.errors import GPULeaseError

_COLUMNS = ("ID", "USER", "SERVER", "CLASS", "STATE", "UTILISATION", "SINCE")


def run(arguments: argparse.Namespace) -> int:
    """Do ``list`` or ``end``; return the exit status."""
    service = _Service(arguments.url)
    if arguments.action == "end":
        lease = service.call(
            "DELETE", f"leases/{quote(arguments.lease, safe='')}", {"note": arguments.reason}
        )
        _say(f"{lease['id']}: {lease['sentence']}")
        return 0
    leases = service.pages("leases", {} if arguments.ended else {"state": "live"})
    if arguments.json:
        _say(json.dumps(leases, indent=2))
    else:
        _say(_table([_row(lease) for lease in leases]) if leases else "There are no leases.")
    return 0


class _Service:
    """Calls the lease service with the administrator's token."""

    def __init__(self, url: str | None) -> None:
        self._url = url or os.environ.get(protocol.ENV_SERVICE_URL, "")
        token = os.environ.get("GPULEASE_TOKEN") or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        if not self._url:
            raise GPULeaseError(
                "no_service",
                "It is not known where the lease service is.",
                next_step=f"Give --url, or set {protocol.ENV_SERVICE_URL}.",
            )
        if not token:
            raise GPULeaseError(
                "no_token",
                "There is no token to prove who you are.",
                next_step="Make one on the hub's Token page and put it into GPULEASE_TOKEN.",
            )
        self._headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}

    def pages(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        """Return every item of a paged list."""
        items: list[dict[str, Any]] = []
        while True:
            asked = urlencode({**query, "offset": len(items), "limit": 200})
            page = self.call("GET", f"{path}?{asked}")
            items += page["items"]
            if not page["items"] or len(items) >= page["total"]:
                return items

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the REST API.

        Raises:
            GPULeaseError: the service's own refusal, or ``service_unreachable``.
        """
        request = HTTPRequest(
            f"{self._url.rstrip('/')}/api/{path}",
            method=method,
            headers=self._headers,
            body=None if body is None else json.dumps(body),
            allow_nonstandard_methods=True,
            follow_redirects=False,
        )
        client = HTTPClient()
        try:
            answer = client.fetch(request, raise_error=False)
            found = json.loads(answer.body or b"null")
        except (OSError, ValueError) as error:
            raise GPULeaseError(
                "service_unreachable",
                f"The lease service at {self._url} gave no usable answer ({error}).",
                next_step="Check the address and whether the service runs.",
                status=503,
            ) from error
        finally:
            client.close()
        if answer.code >= 300:
            raise GPULeaseError.from_problem(found if isinstance(found, dict) else {})
        return found


def _row(lease: dict[str, Any]) -> tuple[str, ...]:
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


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [_COLUMNS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
