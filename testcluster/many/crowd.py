"""A whole crowd on the cluster: kwok's nodes and servers, the service, and who speaks for the rest.

They start and end in a fixed order, with the waits that every use of a crowd needs.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gpulease.protocol import labels
from testcluster.cluster import Cluster
from testcluster.kwok import LABEL, TAINT, add_nodes, remove_nodes
from testcluster.layout import NODE_ADDRESS
from testcluster.many.companions import Companions, speaking
from testcluster.many.kube import Kube, kube
from testcluster.many.notebooks import (
    SERVERS,
    AdminPage,
    Notebooks,
    create_servers,
    delete_all,
)
from testcluster.site import settings
from testcluster.site.shipped import HUB_NAMESPACE
from testcluster.site.site import Site, running_site
from tests.helpers import wait_for_async
from tests.service.kit import hub_api

#: Selects all lease pods: those that a failure left are deleted with the servers'.
LEASE_PODS = labels.lease_selector(labels.APP)
#: How long anything may take; the machine may be busy.
PATIENCE = 300.0
#: Seconds after which a node that kwok plays is lost; it speaks for a hundred of them.
NODE_GRACE = 120

POLICY = """
pools:
  cards: {{evidence: cells}}
classes:
  card:
    pool: cards
    pod:
      kind: device_plugin
      node_selector: {{type: {selector}}}
      tolerations: ["{key}={value}:{effect}"]{queue}
time_outs: {{idle: {idle}, warm_up: 1s, warning: 1s, claim: 8h, start_max: 15m, drain_max: 30s}}
limits: {{queue_max: 10000}}
"""


def policy(idle: str, queue: str = "") -> str:
    """Return a policy for kwok's nodes, whose leases are idle after so long (such as ``8h``).

    ``queue`` is Kueue's that lets their pods in, "" for none.
    """
    words = {each: TAINT[each] for each in ("key", "value", "effect")}
    words["queue"] = f"\n      queue: {{kueue: {queue}}}" if queue else ""
    return POLICY.format(selector=LABEL["type"], idle=idle, **words)


@dataclass
class Crowd:
    """Everybody."""

    site: Site
    kube: Kube
    notebooks: Notebooks
    companions: Companions
    page: AdminPage
    queue: str

    async def restart(self) -> float:
        """Kill the service and start it again; return the seconds until it answered."""
        self.site.kill("service")
        began = time.monotonic()
        await asyncio.to_thread(self.site.start, "service")
        return time.monotonic() - began

    async def until(self, what: str, condition: Callable[[], bool]) -> float:
        """Wait for something; return how many seconds it took."""
        began = time.monotonic()

        def holds() -> bool:
            assert condition(), self.seen()
            return True

        await wait_for_async(holds, PATIENCE, what)
        return time.monotonic() - began

    async def supervisors(self) -> int:
        """Return how many supervisors the service says are connected."""
        return int((await self.page.get("api/health"))["supervisors"])

    def seen(self) -> str:
        """Say where the crowd stands."""
        states = sorted(set(self.page.states.values()))
        return (
            f"{len(self.companions.present)} lease pods, {self.companions.connected} connected; "
            + ", ".join(f"{self.page.count(state)} {state}" for state in states)
        )


@contextmanager
def kwok_nodes(cluster: Cluster, number: int) -> Iterator[None]:
    """Have nodes with 8 GPUs each while a block runs."""
    with cluster.patient(NODE_GRACE):
        add_nodes(cluster, number)
        try:
            yield
        finally:
            remove_nodes(cluster)


@asynccontextmanager
async def crowd(
    cluster: Cluster,
    directory: Path,
    users: Sequence[str],
    *,
    idle: str = "8h",
    service: str = "",
    queue: str = "",
    patience: float = PATIENCE,
    listening: bool = True,
) -> AsyncIterator[Crowd]:
    """Start everything but the asks; nobody has asked for a GPU yet.

    Args:
        service: further lines of the service's configuration.
        queue: Kueue's that lets lease pods in, "" for none.
        patience: seconds in which the servers run.
        listening: whether each notebook server has its events channel open.
    """
    url = ""
    async with contextlib.AsyncExitStack() as stack:
        hub = await stack.enter_async_context(hub_api(address=NODE_ADDRESS))
        hub_port = int(hub.url.partition(NODE_ADDRESS + ":")[2].partition("/")[0])
        opened = running_site(
            cluster,
            directory,
            policy(idle, queue),
            processes=(),
            hub_port=hub_port,
            extra_service=service,
        )
        site = stack.enter_context(opened)
        pods = await stack.enter_async_context(kube(cluster.api, Kube))
        stack.push_async_callback(delete_all, pods, HUB_NAMESPACE, LEASE_PODS, SERVERS)
        await create_servers(pods, HUB_NAMESPACE, users, patience)
        # The service asks the hub, which answers from this very loop: it must not be blocked.
        await asyncio.to_thread(site.start, "service")
        url = settings.url(site.settings.ports.service, settings.PREFIX)
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        companions = await stack.enter_async_context(speaking(pods, session, url, HUB_NAMESPACE))
        notebooks, page = Notebooks(session, url, hub, users), AdminPage(session, url, hub)
        for each in (notebooks.listen(), page.listen()) if listening else (page.listen(),):
            task = asyncio.create_task(each)
            stack.push_async_callback(_end, task)
        yield Crowd(site, pods, notebooks, companions, page, queue)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
