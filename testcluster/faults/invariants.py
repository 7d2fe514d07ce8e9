"""What must hold of a site whatever dies, each with a sentence that names the offender.  Pure."""

from collections import defaultdict
from collections.abc import Iterator

from testcluster.faults.picture import Lease, Picture, Pod
from testcluster.site.shipped import HUB_NAMESPACE

CARDS = 4


def always(seen: Picture) -> list[str]:
    """Return what is wrong at any moment."""
    return [*_too_many(seen), *_given_twice(seen), *_held_twice(seen), *_two_pods(seen)]


def miscounts(seen: Picture) -> dict[str, str]:
    """Return where the kubelet's books and the node differ: by what it is about, in which words.

    A card that a process has and the kubelet does not account for is one that it would give away
    again; one that it holds for a pod that is gone is lost to everybody.  Sources are read one
    after the other, so either may be for a moment.
    """
    if seen.held is None:
        return {}
    found = {}
    for card, uids in seen.cards.items():
        pods = [seen.pods[uid] for uid in sorted(uids) if uid in seen.pods]
        for pod in pods:
            if pod.full_name not in seen.held.get(card, ()):
                found[f"card {card} of {pod.name}"] = (
                    f"the kubelet does not account for card {card}, which {pod.name} has"
                )
    known = {pod.full_name for pod in seen.pods.values()}
    for device, names in seen.held.items():
        for name in sorted(names - known):
            if name.startswith(f"{HUB_NAMESPACE}/"):
                found[f"device {device} for {name}"] = (
                    f"the kubelet holds device {device} for {name}, which is gone"
                )
    return found


def strays(seen: Picture) -> dict[str, str]:
    """Return what may be for a moment and must not stay: by its name, why.

    A GPU pod without a living lease, a pod or a lease without its owner.
    """
    found = {}
    for pod in seen.pods.values():
        if pod.gpus and not pod.ending and (why := _not_leased(pod, seen)):
            found[f"pod {pod.name}"] = why
        elif pod.lease and not any(owner in seen.pods for owner in pod.owners):
            found[f"pod {pod.name}"] = (
                f"lease pod {pod.name} has no owner: its server's pod is gone"
            )
    servers = {pod.user for pod in seen.pods.values() if not pod.lease}
    for lease in seen.leases.values():
        if lease.lives and lease.user not in servers:
            found[f"lease {lease.id}"] = f"{_named(lease)} has no owner: no server of the user runs"
    return found


def at_rest(seen: Picture) -> list[str]:
    """Return what is not at rest: every lease ended with its reason, no device held by anybody."""
    left = [f"{_named(each)} is still {each.state}" for each in seen.leases.values() if each.lives]
    left += [
        f"{_named(each)} ended without a reason"
        for each in seen.leases.values()
        if not each.lives and not each.why
    ]
    left += [
        _not_leased(pod, seen) or f"GPU pod {pod.name} of lease {pod.lease} is still there"
        for pod in seen.pods.values()
        if pod.gpus or pod.lease
    ]
    left += [f"device {each} is still granted to lease {seen.grants[each]}" for each in seen.grants]
    left += [
        f"card {card} is still in use by {_names(pods, seen)}" for card, pods in seen.cards.items()
    ]
    if seen.held is None:
        left.append("the kubelet does not say who holds which device")
    left += [
        f"the kubelet still holds device {device} for {' and '.join(sorted(names))}"
        for device, names in (seen.held or {}).items()
    ]
    if not seen.node_ready:
        left.append("the node is not ready")
    return left


def _too_many(seen: Picture) -> Iterator[str]:
    living = sorted(pod.name for pod in seen.pods.values() if pod.gpus and pod.lives)
    if len(living) > CARDS:
        yield f"{len(living)} GPU pods run on {CARDS} cards: {', '.join(living)}"


def _given_twice(seen: Picture) -> Iterator[str]:
    for card, pods in sorted(seen.cards.items()):
        if len(pods) > 1:
            yield f"card {card} was given twice: to {_names(pods, seen)}"


def _held_twice(seen: Picture) -> Iterator[str]:
    for device, names in sorted((seen.held or {}).items()):
        if len(names) > 1:
            yield f"the kubelet gave device {device} twice: to {' and '.join(sorted(names))}"


def _two_pods(seen: Picture) -> Iterator[str]:
    by_lease = defaultdict(list)
    for pod in seen.pods.values():
        if pod.lease and pod.lives:
            by_lease[pod.lease].append(pod.name)
    for lease, names in sorted(by_lease.items()):
        if len(names) > 1:
            yield f"lease {lease} has {len(names)} pods: {', '.join(sorted(names))}"


def _not_leased(pod: Pod, seen: Picture) -> str:
    """Return why a GPU pod has no lease that lives, "" when it has one."""
    if not pod.lease:
        return f"GPU pod {pod.name} is no lease's"
    lease = seen.leases.get(pod.lease)
    if lease is None:
        return f"GPU pod {pod.name} is of lease {pod.lease}, which the store does not know"
    if not lease.lives:
        return f"GPU pod {pod.name} is of {_named(lease)}, which has ended"
    return ""


def _named(lease: Lease) -> str:
    return f"lease {lease.id} of {lease.user} ({lease.why})"


def _names(uids: frozenset[str], seen: Picture) -> str:
    names = (seen.pods[uid].name if uid in seen.pods else f"pod {uid}" for uid in uids)
    return " and ".join(sorted(names))
