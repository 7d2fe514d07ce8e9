"""Posts batches to the service until it has them.

The connection uses TLS unless ``--plain-http`` allows otherwise, and the token is read again for
each post.  An answer of the service means that a batch was taken, must be posted again after a
back-off, or will never be taken.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

from gpulease.channel.timing import BackOff
from gpulease.errors import GPULeaseError
from gpulease.gpus.agent.ledger import Backlog
from gpulease.protocol.agents import BATCHES_MAX
from gpulease.protocol.names import PROTOCOL_VERSION

log = logging.getLogger(__name__)

_BYTES = 2 * 2**20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_TIMEOUT = 20.0
#: Answers that say "this very body will never do".
_NEVER = frozenset({400, 413, 415, 422})


@dataclass(frozen=True)
class Target:
    """Where to post and as whom.

    Attributes:
        url: the service's prefix with scheme and host.
        token_file: the pod's projected token; the kubelet renews it.
        ca_file: what the service's certificate is checked against; ``None``: the system's.
    """

    url: str
    token_file: Path
    ca_file: Path | None = None


def checked(target: Target, *, plain: bool = False) -> Target:
    """Return the target if a token may be sent there.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    parts = urlsplit(target.url)
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise GPULeaseError(
            "bad_option",
            f"{target.url!r} is no address of a service.",
            next_step="Give --service like https://gpulease.hub.svc:8443/services/gpulease/.",
        )
    if parts.scheme == "http" and not plain:
        raise GPULeaseError(
            "bad_option",
            "The service's address is not https: the agent's token could be read on the way.",
            next_step="Give an https address, or --plain-http where the network is trusted.",
        )
    return target


class Poster:
    """Brings what waits in the ledger to the service.

    Args:
        target: where to.
        ledger: what waits.
        posted: called with the outcome of each post: ``taken``, ``failed`` or ``refused``.
    """

    def __init__(
        self, target: Target, ledger: Backlog, posted: Callable[[str], None] = lambda _: None
    ) -> None:
        self._target = target
        self._ledger = ledger
        self._posted = posted
        self._wake = asyncio.Event()
        self._most = BATCHES_MAX
        self._tls: tuple[float, ssl.SSLContext] | None = None
        #: Why the service has not taken the last post, "" when it has.
        self.problem = "nothing was posted yet"
        #: What the service says of the node's resources: name -> pool and class.
        self.resources: dict[str, dict[str, str]] = {}
        #: Whether the service says that this node is about to go or to be worked on.
        self.leaving = False

    def wake(self) -> None:
        """Say that there is something to post."""
        self._wake.set()

    async def run(self) -> None:
        """Post whatever waits, for ever."""
        pauses = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            self._wake.clear()  # before looking: what comes from now on is not overlooked
            waiting = await asyncio.to_thread(self._ledger.next, self._most, _BYTES)
            if not waiting:
                await self._wake.wait()
                continue
            outcome = await self.post(waiting)
            self._posted(outcome)
            if outcome == "failed":
                await asyncio.sleep(pauses.pause())
                continue
            pauses.worked()
            await asyncio.to_thread(self._settle, waiting, outcome)

    async def post(self, waiting: list[tuple[int, bytes]]) -> str:
        """Post these batches once; return ``taken``, ``failed`` (try again) or ``refused``."""
        try:
            response = await self._send(b",".join(body for _, body in waiting))
        except (OSError, HTTPClientError, GPULeaseError) as error:
            self._failed(str(error) or type(error).__name__)
            return "failed"
        if response.code == 200:
            self._taken(response)
            return "taken"
        self._failed(f"{response.code}: {_sentence(response)}")
        return "refused" if response.code in _NEVER else "failed"

    def _settle(self, waiting: list[tuple[int, bytes]], outcome: str) -> None:
        if outcome == "taken":
            self._ledger.remove([sequence for sequence, _ in waiting])
            self._most = BATCHES_MAX
        elif len(waiting) > 1:
            self._most = 1  # find out which one it is
        else:
            log.error("batch %d will never be taken and is dropped", waiting[0][0])
            self._ledger.dropped += 1
            self._ledger.remove([waiting[0][0]])

    async def _send(self, bodies: bytes) -> HTTPResponse:
        token, tls = await asyncio.to_thread(self._credentials)
        head = {
            "protocol": PROTOCOL_VERSION,
            "run": self._ledger.run,
            "sent": datetime.now(UTC).isoformat(),
        }
        body = json.dumps(head).encode()[:-1] + b',"batches":[' + bodies + b"]}"
        request = HTTPRequest(
            f"{self._target.url.rstrip('/')}/api/agents/batches",
            method="POST",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            body=body,
            connect_timeout=_TIMEOUT,
            request_timeout=_TIMEOUT,
            follow_redirects=False,  # a token is for one address only
            ssl_options=tls,
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    def _credentials(self) -> tuple[str, ssl.SSLContext | None]:
        try:
            token = self._target.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise GPULeaseError(
                "no_token",
                f"The token cannot be read from {self._target.token_file}.",
                next_step="Mount a projected token for the audience gpulease there.",
            ) from error
        if urlsplit(self._target.url).scheme != "https":
            return token, None
        ca_file = self._target.ca_file
        try:
            changed = ca_file.stat().st_mtime if ca_file else 0.0
            if self._tls is None or self._tls[0] != changed:
                self._tls = (changed, ssl.create_default_context(cafile=ca_file))
        except (OSError, ssl.SSLError) as error:
            raise GPULeaseError(
                "no_ca_file",
                f"{ca_file} holds no certificates that can be read.",
                next_step="Give --ca-file the certificate that signed the service's own.",
            ) from error
        return token, self._tls[1]

    def _taken(self, response: HTTPResponse) -> None:
        if self.problem:
            log.info("the service takes what this agent sees")
        self.problem = ""
        try:
            found: Any = json.loads(response.body)
            self.leaving = found.get("leaving") is True
            told = found.get("resources", {})
            self.resources = {
                str(k): {str(a): str(b) for a, b in v.items()} for k, v in told.items()
            }
        except (ValueError, AttributeError):
            log.warning("the service took a post and answered something else than JSON objects")

    def _failed(self, why: str) -> None:
        if why != self.problem:
            log.warning("what this agent sees waits on disk: %s", why)
        self.problem = why


def _sentence(response: HTTPResponse) -> str:
    try:
        problem = json.loads(response.body)
        return str(problem.get("detail") or problem.get("title") or "refused")[:500]
    except (ValueError, AttributeError):
        return "refused"
