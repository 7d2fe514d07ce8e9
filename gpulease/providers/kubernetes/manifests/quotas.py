"""ResourceQuotas of the namespaces in which servers run, as bounds of what may start there.

Owns what a lease pod counts for under a quota, which quotas count for it, and what is left of each.
Pure: quotas and servers' pods as the API server gives them.  Refuses to decide who starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from gpulease.policy.model import Bound, GPUClass, Lease
from gpulease.policy.pods import AskKind, device_class_of
from gpulease.providers.kubernetes.asks.ask import ask_of, limits
from gpulease.providers.kubernetes.asks.claims import amount
from gpulease.providers.kubernetes.manifests.manifest import PodSettings, notebook_container
from gpulease.providers.kubernetes.manifests.process import computed

Manifest = Mapping[str, Any]
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
