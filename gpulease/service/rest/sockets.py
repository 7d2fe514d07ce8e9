"""The websockets: live events, the supervisor channel, and that of a pod that stands ready.

Who may open which is decided here, and what happens to a reader that does not keep up.  What the
messages say stands in ``events`` and ``supervisor_connections``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from gpulease.channel.websocket import REFUSED, ServerEnd
from gpulease.errors import GPULeaseError
from gpulease.policy.model import Lease, LeaseState
from gpulease.protocol.names import PROTOCOL_VERSION, is_understood
from gpulease.protocol.reports import NEEDED, FromServer, FromSupervisor, FromWarmPod
from gpulease.protocol.supervisor import ToSupervisor
from gpulease.providers.base import SupervisorReport
from gpulease.service.languages import ENGLISH, answer_in, best_of
from gpulease.service.leases.events import EventReader
from gpulease.service.rate_limit import PAGES_MAX, PEERS_MAX, RateLimit
from gpulease.service.rest.answering import Answers, reader
from gpulease.service.rest.base import (
    ACCESS,
    LEASE_TOKEN,
    WARM_TOKEN,
    WEBSOCKET,
    BaseHandler,
    answers,
    needs_scope,
)
from gpulease.service.schemas.bodies import EventsQuery

log = logging.getLogger(__name__)

#: A supervisor says hello at once; a channel on which none comes for so long is closed.
HELLO_SECONDS = 30.0


class _Socket(Answers, ServerEnd):
    """A channel of the service's."""

    whose: tuple[str, ...] = ()  # it is: what is bounded is bounded for all channels of one
    _warned = False

    def warn_once(self, words: str, *values: object, about: Mapping[str, object]) -> None:
        """Log what is wrong with a message, for the first such message of this channel only."""
        if not self._warned:
            self._warned = True
            log.warning(words, *values, extra=dict(about))

    def check_origin(self, origin: str) -> bool:  # noqa: ARG002
        """No browser has business here."""
        return False

    async def listen(self, whose: tuple[str, ...], most: int = PEERS_MAX) -> None:
        """Open the channel; return when it is closed.

        Raises:
            GPULeaseError: ``upgrade_required`` (426), ``too_many_channels`` (429).
        """
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise GPULeaseError("upgrade_required", "This address speaks websocket only.")
        self.whose = whose
        with self.bounds.channels.counted(whose, most):
            await super().get()

    def rest(self, seconds: float) -> float:
        """Bound what the service works for whoever sends here."""
        return self.bounds.loop_time.spent(self.whose, seconds)

    @property
    def bounds(self) -> RateLimit:
        """What one person may take."""
        return self.services.bounds

    def account(self) -> int | None:
        """Return the user id at the other end, where it is on this machine and counts there.

        It counts for companions that notebook servers start.  Elsewhere nobody looks for it: the
        kernel's table has a line for each connection, and is read whole.
        """
        if self.services.provider.server_started is None:
            return None
        stream = getattr(self.ws_connection, "stream", None)
        connection = getattr(stream, "socket", None)
        if connection is None:
            return None
        return account_of_peer(connection, self.request.headers)


class EventsSocket(BaseHandler, _Socket):
    """``events``: a page's or a notebook server's live channel."""

    _reader: EventReader | None = None
    _resume: int | None = None
    words = ENGLISH

    def check_origin(self, origin: str) -> bool:
        """A browser may open it from our own pages only; other clients send no origin."""
        host = self.request.headers.get("X-Forwarded-Host") or self.request.headers.get("Host", "")
        return urlsplit(origin).netloc.lower() == host.lower()

    def in_words(self, message: Any) -> Any:
        """Return it in the language of the page or the server that opened the channel."""
        return answer_in(self.words, message)

    async def admit(self) -> None:
        """Find out who asks; a server's own token opens the server's own channel.

        Raises:
            GPULeaseError: as for every request.
        """
        await super().admit()
        if not getattr(self, "_token_authenticated", False):
            # The hub's own check leaves websockets out, and a page of the same origin passes
            # ``check_origin``: whoever opens one must have read our page.
            self.check_page_token(self.query(EventsQuery).page_token)
        self._server: str | None = None
        if getattr(self, "_token_authenticated", False) and self.asker.claimed_server is not None:
            self._server = await self.services.requests.prove(self.asker)

    @needs_scope(ACCESS)
    @answers(WEBSOCKET, query=EventsQuery, refuses=(426, 429))
    async def get(self) -> None:
        """Open the live channel: a snapshot, then changes.

        Raises:
            GPULeaseError: ``upgrade_required`` (426), ``too_many_channels`` (429).
        """
        query = self.query(EventsQuery)
        self._resume, self.words = query.resume, query.language
        if self._server is None:
            await self.listen((self.asker.name,), PAGES_MAX)
        else:
            await self.listen((self.asker.name, self._server))

    def open(self, *args: str, **kwargs: str) -> None:
        """Send the snapshot, or what changed since the resume id."""
        super().open(*args, **kwargs)
        self._reader = EventReader(self.asker, self, self._server)
        self.services.events.join(self._reader, self._resume)
        if self._server is not None:
            self.services.servers.joined(self.asker.name, self._server)

    def arrived(self, message: str | bytes) -> None:
        """Take a notebook server's reports; pages have nothing to say."""
        found = self.read(message)
        if found is None:
            return
        if self._server is None:
            self.close(REFUSED, "pages do not report")
            return
        try:
            report = reader(FromServer).validate_python(found)
        except ValidationError:
            self.warn_once("a server sent a report that is not one", about={"server": self._server})
            return
        self._take(report)

    def on_close(self) -> None:
        """Leave."""
        if self._reader is not None:
            self.services.events.leave(self._reader)
            if self._server is not None:
                self.services.servers.left(self.asker.name, self._server)

    def _take(self, report: FromServer) -> None:
        assert self._server is not None
        user, server = self.asker.name, self._server
        if report["type"] == "kernels":
            self.services.servers.kernels(user, server, report.get("kernels", []))
            return
        if report["type"] == "language":
            self.words = best_of([report.get("language", "")])
            assert self._reader is not None
            self.services.events.tell_all(self._reader)
            return
        lease = self.services.ledger.leases.get(report.get("lease_id", ""))
        started = self.services.provider.server_started
        if started is None or lease is None or (lease.user, lease.server) != (user, server):
            return
        state, detail = report.get("state", ""), report.get("detail", "")
        if state == "failed":
            about = {"lease": lease.id, "server": server}
            log.warning("the supervisor did not start: %s", detail, extra=about)
        pids, attempt = tuple(report.get("pids", ())), report.get("attempt", 0)
        started.report(SupervisorReport(lease.id, attempt, state, detail, pids, self.account()))
        self.services.loop.wake()


class SupervisorSocket(_Socket):
    """``leases/{id}/supervisor``: the channel of one lease's supervisor."""

    hello_seconds = HELLO_SECONDS
    _lease_id = ""
    _rank = 0  # of the lease's node that it is
    _said_hello = False
    _silence: asyncio.TimerHandle | None = None

    @needs_scope(LEASE_TOKEN)
    @answers(WEBSOCKET, refuses=(401, 403, 426, 429, 502, 503))
    async def get(self, lease_id: str) -> None:
        """Open the channel of the lease's supervisor.

        Raises:
            GPULeaseError: ``not_this_lease`` (401, 403), ``upgrade_required`` (426),
                ``too_many_channels`` (429), and what the provider raises when it cannot tell.
        """
        await self._prove(lease_id)
        await self.listen(("lease", self._lease_id, str(self._rank or "")))

    def open(self, *args: str, **kwargs: str) -> None:
        """Wait for the supervisor to say who it is, and not for ever."""
        super().open(*args, **kwargs)
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self.hello_seconds, self._still_silent)

    def _still_silent(self) -> None:
        if not self._said_hello:
            self.close(REFUSED, "no hello")

    def arrived(self, message: str | bytes) -> None:
        """Take one message of the supervisor."""
        found = self.read(message)
        if found is None:
            return
        about = {"lease": self._lease_id}
        try:
            said = reader(FromSupervisor).validate_python(found)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            self.warn_once("a supervisor sent what is no message: %s", why, about=about)
            return
        if NEEDED.get(said["type"], frozenset()) - said.keys():
            self.warn_once("a supervisor's message lacks members: %s", said["type"], about=about)
            return
        lease = self.services.ledger.leases.get(self._lease_id)
        if lease is None:
            self.close(REFUSED, "no such lease")
        elif said["type"] == "hello":
            self._hello(lease, said)
        elif self._said_hello:
            self._said(lease, said)

    def on_close(self) -> None:
        """Tell that the channel is lost."""
        if self._silence is not None:
            self._silence.cancel()
        if self._said_hello:
            self.services.links.lost(self._lease_id, self)

    def tell(self, message: ToSupervisor) -> None:
        """Send one message to the supervisor."""
        self.send(message)

    def hang_up(self) -> None:
        """Close the channel."""
        self.close()

    async def _prove(self, lease_id: str) -> None:
        token = self.bearer()
        lease = self.services.ledger.leases.get(lease_id)
        rank = None
        if lease is not None and token and lease.state is not LeaseState.QUEUED:
            rank = await self.services.provider.rank_of(lease, token)
        if rank is None:
            raise GPULeaseError(
                "not_this_lease",
                "This token does not open this lease's channel.",
                status=403 if token else 401,
            )
        self._lease_id, self._rank = lease_id, rank

    def _hello(self, lease: Lease, said: FromSupervisor) -> None:
        if not is_understood(said["protocol"]):
            words = "supervisor speaks protocol %s, this service %s"
            log.warning(words, said["protocol"], PROTOCOL_VERSION, extra={"lease": lease.id})
            self.services.links.not_understood(lease)
            self.send({"type": "end", "reason": "protocol"})
            return
        if lease.state is LeaseState.ENDED:
            self.send({"type": "end", "reason": lease.end_reason or "ended"})
            return
        if said.get("attempt") not in (None, lease.attempt):
            self.send({"type": "end", "reason": "old_attempt"})
            return
        if self._rank:
            self._said_hello = self.services.links.joined(lease, self._rank, self, said)
            if not self._said_hello:
                self.close(REFUSED, "another key")
            return
        first = self.services.links.state(lease.id)
        if not self.services.links.connected(lease, self, said, self.account()):
            self.close(REFUSED, "another key")
            return
        if first is None or first.attempt != lease.attempt:
            self.services.environments.seen(lease, said)
        self._said_hello = True
        self.services.servers.check_keys(lease)
        log.info("supervisor connected", extra={"lease": lease.id, "attempt": lease.attempt})

    def _said(self, lease: Lease, said: FromSupervisor) -> None:
        if said["type"] == "activity":
            self.services.heard(lease, said.get("samples", []))
        elif self._rank:
            self.services.links.heard_member(lease, self._rank, said)
        else:
            self.services.links.heard(lease.id, said)


class WarmSocket(_Socket):
    """``warm``: the channel of one pod that stands ready, until it is somebody's."""

    _pod = ""

    @needs_scope(WARM_TOKEN)
    @answers(WEBSOCKET, refuses=(401, 403, 426, 429, 502))
    async def get(self) -> None:
        """Open the channel of a pod that stands ready.

        Raises:
            GPULeaseError: ``not_a_warm_pod`` (401, 403), ``cluster_unreachable`` (502),
                ``upgrade_required`` (426), ``too_many_channels`` (429).
        """
        await self._prove()
        await self.listen(("warm", self._pod, ""))

    def arrived(self, message: str | bytes) -> None:
        """Take the word that it is ready; it has nothing else to say."""
        found, pods = self.read(message), self.services.provider.warm_pods
        if found is None or pods is None:
            return
        try:
            said = reader(FromWarmPod).validate_python(found)
        except ValidationError:
            self.close(REFUSED, "no hello")
            return
        if is_understood(said["protocol"]):
            pods.ready(self._pod, self.tell)
        else:
            self.send({"type": "end"})

    def on_close(self) -> None:
        """Tell that the channel is lost."""
        pods = self.services.provider.warm_pods
        if pods is not None and self._pod:
            pods.lost(self._pod, self.tell)

    def tell(self, environment: Mapping[str, str]) -> None:
        """Tell the pod whose it has become."""
        self.send({"type": "claimed", "environment": dict(environment)})

    async def _prove(self) -> None:
        pods, token = self.services.provider.warm_pods, self.bearer()
        try:
            self._pod = await pods.proves(token) if pods is not None and token else ""
        except OSError as error:
            raise GPULeaseError(
                "cluster_unreachable",
                "The cluster does not say at present whose token this is.",
                next_step="Try again in a moment.",
                status=502,
            ) from error
        if not self._pod:
            raise GPULeaseError(
                "not_a_warm_pod",
                "Only a pod that was started ahead learns here which lease gets it.",
                status=403 if token else 401,
            )


#: A proxy writes one of these; the connection is its own then and says nothing of who sent what.
_FORWARDED = ("X-Forwarded-For", "X-Real-Ip", "Forwarded")


def account_of_peer(connection: socket.socket, headers: Mapping[str, str]) -> int | None:
    """Return the user id that owns the other end of a TCP connection.

    ``None`` where the other end is on another machine (or in another network namespace), and where
    a proxy stands between.
    """
    if any(name in headers for name in _FORWARDED):
        return None
    try:
        theirs, ours = connection.getpeername(), connection.getsockname()
    except OSError:  # closed meanwhile
        return None
    address = _plain(theirs[0])
    table = Path("/proc/net/tcp6" if address.version == 6 else "/proc/net/tcp")
    wanted = [_written(address, theirs[1]), _written(_plain(ours[0]), ours[1])]
    # Columns: number, local address, remote address, state, queues, timer, retransmits, user id.
    for line in table.read_text().splitlines()[1:]:
        columns = line.split()
        if columns[1:3] == wanted:
            return int(columns[7])
    return None


def _plain(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _written(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Return an address as the kernel's table writes it: words of 32 bits in the host's order."""
    words = struct.unpack(f"={len(address.packed) // 4}I", address.packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
