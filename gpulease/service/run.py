"""One running lease service: its parts, put together in order and taken apart in reverse.

Here are the background tasks too, and what happens when the store says that another service took
over.  ``app`` reads the options.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jupyterhub.utils import make_ssl_context
from tornado.netutil import bind_sockets
from tornado.routing import Router

from gpulease.errors import GPULeaseError
from gpulease.gpus.base import Probe
from gpulease.policy.lifecycle import time_outs_of
from gpulease.policy.model import DevicesBy, Lease, Snapshot
from gpulease.protocol.service import GrantView, LeaseView
from gpulease.providers.base import Provider
from gpulease.providers.local import LocalProvider
from gpulease.service.agents import Agents
from gpulease.service.context import Retention, Services
from gpulease.service.control_loop.deciding import last_spread
from gpulease.service.control_loop.evidence import EvidenceCollector
from gpulease.service.control_loop.incidents import Incidents
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies, WhatIf
from gpulease.service.control_loop.reconcile import Reconciler
from gpulease.service.hubs.api import HubAPI
from gpulease.service.hubs.auth import ServiceOAuth, close_hub_client
from gpulease.service.hubs.hubs import Hubs
from gpulease.service.leases.commands import LeaseCommands
from gpulease.service.leases.events import Events
from gpulease.service.leases.history import History
from gpulease.service.leases.requests import LeaseRequests, RequestBatcher
from gpulease.service.leases.servers import Environments, Servers
from gpulease.service.leases.usage import UsageSums, WarmTime
from gpulease.service.leases.views import Views
from gpulease.service.metrics import Metrics
from gpulease.service.notices import Messages, Notifier, channels
from gpulease.service.rate_limit import Listener, RateLimit
from gpulease.service.reservations.commands import Reservations
from gpulease.service.reservations.watch import ReservationWatch
from gpulease.service.rest.answering import BODY_MAX
from gpulease.service.routes import figures, first_log_in, front
from gpulease.service.runs.commands import Runs
from gpulease.service.runs.servers import RunRecords
from gpulease.service.settings.options import (
    Options,
    choose_probe,
    first_time_outs,
    key_path,
    secret_of,
)
from gpulease.service.settings.reading import one_token_each
from gpulease.service.supervisors.supervisor_connections import SupervisorConnections
from gpulease.service.workers import Workers
from gpulease.store import Change, Store, upgrade
from gpulease.store.people import MESSAGES
from gpulease.system.private_files import require_closed_folder

log = logging.getLogger(__name__)

#: Connections to the address that is for Prometheus alone.
_PROMETHEUSES = 20
_INVENTORY_EVERY = 60
_FENCE_EVERY = 10.0
#: The store's note of the notices that a service could not send before it ended.
_NOTICES = "notices"


class RunningService:
    """The service of one process.

    Args:
        options: what it is told.
        probe: reads the devices; by default NVML, else the simulated ones.
    """

    services: Services

    def __init__(self, options: Options, probe: Probe | None = None) -> None:
        self._options = options
        self._probe = probe
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[Listener] = []
        self._fenced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.port = options.port
        page = f"{options.hub_origin.rstrip('/')}{options.prefix}" if options.hub_origin else ""
        self._notifier = Notifier(
            channels(options.smtp, options.mail_from, options.webhook, options.smtp_login, page)
        )
        self.metrics_port = 0

    async def open(self) -> None:
        """Start everything; requests are answered when this returns.

        Raises:
            GPULeaseError: the store or the policy cannot be used.
            OSError: the port is taken, or a file cannot be read.
        """
        store = await asyncio.to_thread(self._open_store)
        try:
            await self._open(store)
        except BaseException:
            store.close()
            raise

    async def failed(self) -> None:
        """Return when the service must end: another one took the store over."""
        await self._fenced

    async def close(self) -> None:
        """End in order: no new requests, no new rounds, then channels, devices, store."""
        for listener in self._listeners:
            listener.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        services = self.services
        await self._keep_notices(await self._notifier.close())
        await services.loop.close()
        for reader in services.events.readers:
            reader.sink.close()
        services.links.close()
        for listener in self._listeners:
            await listener.close_all_connections()
        await services.provider.close()
        await close_hub_client()
        services.workers.close()
        services.ledger.close()
        log.info("the lease service ended; leases go on")

    async def _take_notices(self) -> None:
        """Send what the last service could not; one that is killed leaves nothing to send twice."""
        ledger = self.services.ledger
        if left := await ledger.call(ledger.store.noted, _NOTICES):
            await ledger.call(ledger.store.note, _NOTICES, "")
            self._notifier.tell_left(left)

    async def _keep_notices(self, left: str) -> None:
        """Keep what could not be sent for the next service, and nothing that this one sent."""
        ledger = self.services.ledger
        try:
            await ledger.call(ledger.store.note, _NOTICES, left)
        except GPULeaseError as error:
            log.warning("the notices that are not sent yet could not be kept: %s", error.sentence)

    def _open_store(self) -> Store:
        options = self._options
        beside = key_path(options.database_url)
        if options.cluster is None:  # a pod's volume may be open: nobody else is there
            require_closed_folder(options.key_file or beside)
            if options.database_url.startswith("sqlite"):
                require_closed_folder(beside)
        upgrade(options.database_url)
        return Store.open(options.database_url)

    async def _open(self, store: Store) -> None:
        hub_auth = first_log_in(self._options)
        secret = await asyncio.to_thread(secret_of, self._options, hub_auth.api_token)
        self.services = await self._made(store, hub_auth, secret)
        await self._load()
        self._listen(hub_auth, secret)
        self._start()

    async def _made(self, store: Store, hub_auth: ServiceOAuth, secret: bytes) -> Services:
        """Make what the service consists of, each part from those before it."""
        options = self._options
        metrics, watch, workers = Metrics(), EvidenceCollector(), Workers()
        ledger = Ledger(store, self._moved)
        messages = await self._messages(ledger, store)
        events = Events(self._granted, messages=messages.shown_to)
        policies = Policies(ledger, self._wake, options.policy_file)

        def grace(lease: Lease) -> float:
            return time_outs_of(policies.current, lease).interrupt_grace

        links = SupervisorConnections(self._wake, grace)
        hub = _hubs(options, hub_auth)
        provider = await self._provider(links, policies, secret, metrics)
        reservations = Reservations(
            ledger, lambda: policies.current, self._snapshot, self._wake,
            tell=self._notifier.tell, members=hub.members, workers=workers,
        )  # fmt: skip
        usage = UsageSums(ledger, lambda: policies.current, self._notifier.tell)
        loop = Reconciler(
            ledger, provider, links, watch, policies, metrics=metrics, publish=self._publish,
            tick=options.tick, windows=reservations.windows, use=usage.use, spent=usage.spent,
            away_from=store.last_beat,
            wait_spread=await asyncio.to_thread(last_spread, options.database_url),
        )  # fmt: skip
        servers = Servers(ledger, loop, links, hub, every=options.hub_seconds)
        runs = Runs(
            RunRecords(ledger, loop.clock), hub, lambda: policies.current, loop.shown,
            linked=servers.linked, every=options.hub_seconds,
        )  # fmt: skip
        batcher = RequestBatcher(ledger, loop)
        requests = LeaseRequests(batcher, loop.clock, hub, runs.executes)
        commands = LeaseCommands(ledger, loop, links, policies, batcher, prove=requests.prove)
        return Services(
            prefix=options.prefix, ledger=ledger, provider=provider, links=links, watch=watch,
            events=events, servers=servers, hub=hub, loop=loop, requests=requests,
            commands=commands, policies=policies, metrics=metrics, workers=workers,
            reservations=reservations, messages=messages, usage=usage, runs=runs,
            views=Views(loop, provider.server_started, servers.notebook_of),
            history=History(ledger, commands),
            incidents=Incidents(ledger),
            agents=Agents(provider.agent_reports),
            bounds=RateLimit(lambda: policies.current.changes_per_minute),
            reservation_watch=ReservationWatch(
                reservations, ledger, lambda: policies.current, self._snapshot,
                tell=self._notifier.tell, workers=workers,
            ),
            whatif=WhatIf(ledger, policies, lambda: loop.observed_state.devices, workers),
            environments=Environments(
                provider.image, lambda: policies.current, reservations.windows, loop.clock
            ),
            warm_time=WarmTime(ledger, provider.warm_pods, metrics),
        )  # fmt: skip

    async def _messages(self, ledger: Ledger, store: Store) -> Messages:
        messages = Messages(
            lambda: datetime.now(UTC),
            lambda kept: ledger.call(store.note, MESSAGES, kept),
            self._tell_messages,
        )
        messages.load(await ledger.call(store.noted, MESSAGES))
        return messages

    async def _load(self) -> None:
        """Take up what an earlier service left, in the order in which one needs the other."""
        services, options = self.services, self._options
        await services.ledger.load(datetime.now(UTC))
        await services.reservations.load()
        await services.reservation_watch.load()
        devices = await services.provider.devices()
        outs = first_time_outs(options.first_time_outs)
        await services.policies.open(devices, options.first_policy_file, outs)
        await services.usage.load()
        await services.warm_time.load()
        await services.runs.load()
        await self._take_notices()
        # As the policy has the devices now.
        await services.loop.recover(await services.provider.devices())
        # The first page or notebook that comes back finds every lease there is.
        await services.publish(services.loop.snapshot())

    def _start(self) -> None:
        services = self.services
        retention = Retention(services.ledger, services.reservations, self._options.ages)
        going = {
            "reconcile": services.loop.run(),
            "servers": services.servers.run(),
            "sample": self._sample(),
            "reservations": services.reservation_watch.watch(),
            "usage": services.usage.watch(),
            "warm time": services.warm_time.watch(),
            "runs": services.runs.watch(),
            "fence": self._hold_fence(),
            "retention": retention.run(),
        }
        if services.policies.pinned:
            going["policy"] = services.policies.watch()
        self._tasks = [asyncio.create_task(each, name=name) for name, each in going.items()]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _snapshot(self) -> Snapshot:
        return self.services.loop.snapshot()

    async def _provider(
        self, links: SupervisorConnections, policies: Policies, secret: bytes, metrics: Metrics
    ) -> Provider:
        """Open the provider that the options name."""
        cluster = self._options.cluster
        if cluster is None:
            return await self._local(links, policies, secret)
        provider = cluster.provider(
            links,
            lambda: policies.current.classes,
            lambda: policies.current.reservations.images,
            self._wake_if_up,
            metrics,
            elastic=lambda: bool(policies.current.elastic),
            hubs=self._options.hubs,
        )
        await provider.open()
        return provider

    async def _local(
        self, links: SupervisorConnections, policies: Policies, secret: bytes
    ) -> Provider:
        """Open the local provider: real devices where there are some, else simulated ones."""
        options = self._options

        def grant(lease: Lease, token: str, visible: str, simulated: bool) -> GrantView:
            return {
                "attempt": lease.attempt,
                "token": token,
                "visible_devices": visible,
                "simulated": simulated,
                "drain_max": time_outs_of(policies.current, lease).drain_max,
                "park_dir": options.park_dir,
                "park_limit": options.park_limit,
                "park_expiry": options.park_expiry,
            }

        probe = self._probe
        if probe is None:
            probe = await asyncio.to_thread(choose_probe, options)
        provider = LocalProvider(
            probe,
            links,
            secret,
            grant,
            lost_after=self._options.lost_seconds,
            devices_by=lambda name: (
                policies.current.by_name[name].devices_by
                if name in policies.current.by_name
                else DevicesBy.UUID
            ),
            card_parts=lambda pool: policies.current.parts.get(pool, 0),
        )
        await provider.open()
        return provider

    def _listen(self, hub_auth: ServiceOAuth, secret: bytes) -> None:
        options = self._options
        self.port = self._listen_at(
            front(self.services, options, hub_auth, secret),
            options.host,
            options.port,
            most=options.connections_max,
            body_max=BODY_MAX,
            ssl_options=options.tls,
        )
        log.info("listening on port %d under %s", self.port, options.prefix)
        if options.metrics_at is not None:
            found = figures(self.services)
            host, port = options.metrics_at
            self.metrics_port = self._listen_at(found, host, port, most=_PROMETHEUSES, body_max=0)
            log.info("answering /metrics on port %d", self.metrics_port)

    def _listen_at(self, app: Router, host: str, port: int, **bounds: Any) -> int:
        """Answer requests there; return the port."""
        listener = Listener(app, seconds=self._options.request_seconds, **bounds)
        sockets = bind_sockets(port, host)
        listener.add_sockets(sockets)
        self._listeners.append(listener)
        return int(sockets[0].getsockname()[1])

    def _granted(self, lease: Lease, view: LeaseView) -> LeaseView:
        return self.services.views.granted(lease, view)

    def _wake(self) -> None:
        self.services.loop.wake()

    def _wake_if_up(self) -> None:
        """Wake the loop; a cluster tells of changes before there is one."""
        if hasattr(self, "services"):
            self._wake()

    def _tell_messages(self) -> None:
        self.services.events.tell_messages()

    def _moved(self, changes: Sequence[Change], now: datetime) -> None:
        self.services.moved(changes, now)

    async def _publish(self, snapshot: Snapshot) -> None:
        await self.services.publish(snapshot)

    async def _sample(self) -> None:
        """Read the devices once a second, and their inventory once a minute."""
        count = 0
        while True:
            await asyncio.sleep(1.0)
            count += 1
            try:
                if count % _INVENTORY_EVERY == 0:
                    await self.services.provider.inventory()
                self.services.watch.sampled(await self.services.provider.sample())
            except OSError as error:
                log.warning("the devices could not be read: %s", error)
            except Exception:
                # No data is not idleness; were this loop to end, there would be none ever again.
                log.exception("the devices could not be read; the next second tries again")

    async def _hold_fence(self) -> None:
        """Make sure that this service is still the store's one writer."""
        while True:
            await asyncio.sleep(_FENCE_EVERY)
            try:
                store = self.services.ledger.store
                await self.services.ledger.call(store.check, datetime.now(UTC))
            except GPULeaseError as error:
                log.critical("%s", error, extra={"reason": error.reason})
                if error.reason in {"store_fenced", "store_in_use"} and not self._fenced.done():
                    self._fenced.set_result(None)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        log.error("task %s ended", task.get_name(), exc_info=task.exception())
        if not self._fenced.done():
            self._fenced.set_result(None)


def _hubs(options: Options, log_in: ServiceOAuth) -> Hubs:
    one_token_each(options.hubs, log_in.api_token)
    # None unless the hub's inner traffic is encrypted: JUPYTERHUB_SSL_KEYFILE and its like.
    tls = make_ssl_context(log_in.keyfile, log_in.certfile, cafile=log_in.client_ca)
    first = HubAPI(log_in.api_url, log_in.api_token, tls=tls)
    return Hubs(first, {hub.name: HubAPI(hub.api_url, hub.token) for hub in options.hubs})
