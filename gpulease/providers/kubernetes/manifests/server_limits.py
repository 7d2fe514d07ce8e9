"""What bounds a lease pod of a notebook server: where its home can be mounted, and its quotas.

A home that one node alone can mount is looked up as soon as the server's pod has a place, so that
the answer is there before anybody asks for a GPU; only on nodes with GPUs.  A ResourceQuota of the
server's namespace bounds what may start: what a lease pod counts for under it, and what is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from gpulease.policy.model import Bound, GPUClass, Lease
from gpulease.policy.pods import AskKind, device_class_of
from gpulease.providers.kubernetes.api.client import CLAIMS, ClientError, KubernetesAPI, Manifest
from gpulease.providers.kubernetes.api.watch import key_of
from gpulease.providers.kubernetes.manifests.manifest import PodSettings, notebook_container
from gpulease.providers.kubernetes.manifests.process import computed
from gpulease.providers.kubernetes.observed.index import PodIndex
from gpulease.providers.kubernetes.pod_resources.ask import ask_of, limits
from gpulease.providers.kubernetes.pod_resources.claims import amount
from gpulease.providers.kubernetes.pod_resources.volumes import home_claim, is_for_one_node

log = logging.getLogger(__name__)

#: Claims that are looked at at once.
_AT_ONCE = 4
#: Seconds until a look that failed is made again, if it is still asked for.
_AGAIN = 5.0


class Homes:
    """The homes of the servers' pods.

    Args:
        client: reaches the API server.
        index: the pods that are there.
        home: the path of the student's home in the servers.
    """

    def __init__(self, client: KubernetesAPI, index: PodIndex, home: str) -> None:
        self._client = client
        self._index = index
        self._home = home
        self._nodes: frozenset[str] = frozenset()
        self._tied: dict[str, bool] = {}  # by the UID of the server's pod
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def offered(self, nodes: frozenset[str]) -> None:
        """Take which nodes have GPUs: homes of servers elsewhere are not looked at."""
        if nodes != self._nodes:
            self._nodes = nodes
            for server in self._index.all_servers():
                self._learn(server)

    def changed(self, before: Manifest | None, after: Manifest | None) -> None:
        """Take a change of a server's pod: ``None`` is no pod."""
        if after is not None:
            self._learn(after)
        elif before is not None:
            self._forget(_uid(before))

    def preferred_node(self, server: Manifest | None) -> str:
        """Return the node on which alone this server's home can be mounted, "" for any.

        It is "" too for a node without GPUs, while the claim is not known, and without a server.
        """
        if server is None:
            return ""
        self._learn(server)
        return _node(server) if self._tied.get(_uid(server)) else ""

    def _learn(self, server: Manifest) -> None:
        uid = _uid(server)
        if _node(server) not in self._nodes or uid in self._tied or uid in self._looks:
            return
        claim = home_claim(server, notebook_container(server), self._home)
        if not claim:
            self._tied[uid] = False
            return
        task = asyncio.create_task(self._look(uid, claim, key_of(server)[0]), name=f"home {uid}")
        self._looks[uid] = task
        task.add_done_callback(lambda _: self._looks.pop(uid, None))

    def _forget(self, uid: str) -> None:
        self._tied.pop(uid, None)
        task = self._looks.get(uid)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Look no more."""
        looks = list(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look(self, uid: str, name: str, namespace: str) -> None:
        async with self._slots:
            try:
                claim = await self._client.get(CLAIMS, name, namespace)
            except ClientError as error:
                # The lease may then land elsewhere, and its home is mirrored.
                log.info("claim %s/%s is not known: %s", namespace, name, error)
            else:
                self._tied[uid] = is_for_one_node(claim)
                return
        await asyncio.sleep(_AGAIN)


def _node(server: Manifest) -> str:
    return str(server["spec"].get("nodeName") or "")


def _uid(server: Manifest) -> str:
    return str(server["metadata"]["uid"])


Amounts = dict[str, Decimal]

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_CLAIMS: Final = "count/resourceclaims.resource.k8s.io"
_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"


@dataclass(frozen=True)
class Wish:
    """The pods that would be created: which class serves the lease, beside which server's pod."""

    lease: Lease
    gpu_class: GPUClass
    server: Manifest

    @property
    def namespace(self) -> str:
        """Return where the pod would stand."""
        return str(self.server["metadata"]["namespace"])


def counted(wish: Wish) -> Amounts:
    """Return what a lease's pods count for, by the names that quotas bound."""
    ask, count = ask_of(wish.gpu_class), wish.lease.per_node
    found: Amounts = {"pods": Decimal(1), "count/pods": Decimal(1)}
    asked = computed(notebook_container(wish.server), ask)
    for kind, amounts in asked.items():
        found |= {f"{kind}.{name}": amount(text) for name, text in amounts.items()}
    for name in _COMPUTE:
        # What is limited and not requested is requested as much; and both may be bounded plainly.
        limit = found.get(f"limits.{name}", Decimal(0))
        found[name] = found.setdefault(f"requests.{name}", limit)
    found |= {f"requests.{name}": amount(text) for name, text in limits(ask, count).items()}
    if ask.kind is AskKind.DRA:
        found |= {_CLAIMS: Decimal(1), f"{device_class_of(ask)}{_DEVICES}": Decimal(count)}
    return {name: wish.lease.nodes * each for name, each in found.items()}


def counts_for(quota: Manifest, wish: Wish, settings: PodSettings) -> bool:
    """Whether a quota's scopes take a lease pod in; one without scopes counts for every pod."""
    spec = quota.get("spec") or {}
    named = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes = [*named, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]
    return all(_in_scope(each, wish, settings) for each in scopes)


def _in_scope(scope: Manifest, wish: Wish, settings: PodSettings) -> bool:
    name = scope["scopeName"]
    if name == "PriorityClass":
        chosen = ask_of(wish.gpu_class).priority_class or settings.priority_class
        values = scope.get("values") or ()
        return {
            "In": chosen in values,
            "NotIn": chosen not in values,
            "Exists": bool(chosen),
            "DoesNotExist": not chosen,
        }[scope["operator"]]
    found = counted(wish)
    effort = any(found[f"requests.{each}"] for each in ("cpu", "memory"))
    # Each lease pod has a deadline, which is what "terminating" means here.
    return {"Terminating": True, "BestEffort": not effort, "NotBestEffort": effort}.get(name, False)


@dataclass(frozen=True)
class Ahead:
    """Who may start next.

    Attributes:
        requests: those that wait; each may be served by its class or by a fall-back of it.
        coming: leases whose pods are decided and not there yet: no quota counts them so far.
        classes: on offer.
        server_pod: returns the pod of a user's server; whose is not there is left out.
    """

    requests: Sequence[Lease]
    coming: Sequence[Lease]
    classes: Sequence[GPUClass]
    server_pod: Callable[[str, str], Manifest | None]

    def wishes(self) -> list[Wish]:
        """Return each pod that could serve one who waits."""
        return [wish for lease in self.requests for wish in self._of(lease)]

    def decided(self) -> list[Wish]:
        """Return each pod that is on its way."""
        return [wish for lease in self.coming for wish in self._of(lease)[:1]]

    def _of(self, lease: Lease) -> list[Wish]:
        server = self.server_pod(lease.user, lease.server)
        offered = {each.name: each for each in self.classes}
        own = offered.get(lease.gpu_class)
        if server is None or own is None:
            return []
        names = (own.name, *own.fallback)
        return [Wish(lease, offered[name], server) for name in names if name in offered]


def bounds(quotas: Iterable[Manifest], ahead: Ahead, settings: PodSettings) -> list[Bound]:
    """Return what each quota leaves for those who wait.

    Args:
        quotas: of any namespaces.
        ahead: who waits, and whose pod comes.
        settings: of all lease pods.
    """
    wishes, coming = _by_namespace(ahead.wishes()), _by_namespace(ahead.decided())
    found = []
    for quota in quotas:
        namespace = str(quota["metadata"]["namespace"])
        those = [w for w in wishes.get(namespace, ()) if counts_for(quota, w, settings)]
        if not those:
            continue
        mine = {(wish.lease.id, wish.gpu_class.name): _by_number(wish) for wish in those}
        decided = coming.get(namespace, ())
        soon = [counted(wish) for wish in decided if counts_for(quota, wish, settings)]
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        for name, most in sorted(hard.items()):
            takes = {key: _amounts(each, name) for key, each in mine.items()}
            takes = {key: each for key, each in takes.items() if each}
            if not takes:
                continue
            expected = sum((each.get(name, Decimal(0)) for each in soon), Decimal(0))
            left = amount(str(most)) - amount(str(used.get(name, "0"))) - expected
            detail = (
                f"Quota {quota['metadata']['name']} of namespace {namespace}: {used.get(name, '0')}"
                f" of {most} {name} used"
            )
            found.append(Bound(f"{detail}.", left, takes))
    return found


def _by_namespace(wishes: Iterable[Wish]) -> dict[str, list[Wish]]:
    found: dict[str, list[Wish]] = {}
    for wish in wishes:
        found.setdefault(wish.namespace, []).append(wish)
    return found


def _by_number(wish: Wish) -> dict[int, Amounts]:
    """Return what a request counts for with each number of devices that it can live with."""
    lease = wish.lease
    numbers = [n for n in range(lease.least, lease.count + 1) if lease.fit(n) == n]
    return {n: counted(replace(wish, lease=replace(lease, count=n))) for n in numbers}


def _amounts(by_number: Mapping[int, Amounts], name: str) -> dict[int, Decimal]:
    return {number: each[name] for number, each in by_number.items() if each.get(name)}
