"""How a student's files reach a lease pod: mounted as in the server, or mirrored.

Each volume of the server's pod gets a decision before the lease pod exists, with a sentence for
admins.  A volume that two nodes may hold is mounted.  A volume that one node holds (ReadWriteOnce)
is mounted only where the lease can run on that node; otherwise the home is mirrored, and other
writable data is left out.  Secrets, host paths and the like never travel.  Pure: claims and volumes
come in as the API server shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gpulease.providers.kubernetes.pod_resources.nodes import any_holds

MOUNT: Final = "mount"
MIRROR: Final = "mirror"
Way = Literal["mount", "mirror"]

#: Every code of a decision and what it comes to.
WAYS: Final[Mapping[str, Way]] = {
    "many": MOUNT,
    "read_only": MOUNT,
    "same_node": MOUNT,
    "shared": MOUNT,
    "other_node": MIRROR,
    "one_pod": MIRROR,
    "out_of_reach": MIRROR,
    "claim_unbound": MIRROR,
    "no_claim": MIRROR,
    "no_home_volume": MIRROR,
    "sub_path": MIRROR,
    "mirror_forced": MIRROR,
}

#: Inline volumes that several nodes may hold at once.
SHARED_INLINE: Final = ("nfs", "cephfs", "glusterfs")
_MOUNT_KEYS: Final = ("name", "mountPath", "subPath")


@dataclass(frozen=True)
class KnownNode:
    """A node by its name and labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Files:
    """What the lease pod mounts and how the home reaches it.

    ``node`` is the one node on which the pod can hold a ReadWriteOnce volume, "" for any.
    ``code`` is the reason in one word, ``why`` in a sentence for the admin; ``left_out`` are
    mounts of the server that the pod lacks, each with why.
    """

    way: Way
    code: str
    why: str
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    node: str = ""
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Situation:
    """Everything the decision is made from.

    Attributes:
        claims: the namespace's PersistentVolumeClaims by name.
        volumes: PersistentVolumes by name, as far as they may be read.
        server: the node the server runs on, ``None`` while unknown.
        candidates: the nodes that have what the class asks for, the granted one among them.
        granted: the node of the granted devices: what one node holds is mounted only there, for
            elsewhere on purpose somebody else's device would be asked for; "" is any candidate.
        home: the path of the student's home in the server.
        mirror_because: why the home must be mirrored whatever the claim says ("" if it need not),
            as after a volume that would not attach.
    """

    claims: Mapping[str, Mapping[str, Any]]
    volumes: Mapping[str, Mapping[str, Any]]
    server: KnownNode | None
    candidates: Sequence[KnownNode]
    home: str
    mirror_because: str = ""
    granted: str = ""


@dataclass(frozen=True)
class _Verdict:
    code: str
    why: str
    read_only: bool = False
    pinned: bool = False

    @property
    def mount(self) -> bool:
        return WAYS[self.code] == MOUNT


def decide(pod: Mapping[str, Any], container: Mapping[str, Any], seen: Situation) -> Files:
    """Return what of the server's volumes the lease pod mounts.

    Args:
        pod: the server's pod as the API server gives it.
        container: the notebook container in it.
        seen: claims, volumes and nodes.
    """
    sources = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    mounts = list(container.get("volumeMounts") or ())
    home = _home_mount(mounts, seen.home)
    if home is None:
        way: Way = MIRROR
        verdict = _Verdict("no_home_volume", "The server's home is on no volume.")
    else:
        verdict = _judge(sources.get(home["name"], {}), home, seen)
        if verdict.mount and seen.mirror_because:
            verdict = _Verdict("mirror_forced", seen.mirror_because)
        way = MOUNT if verdict.mount else MIRROR
    # Data beside the home never ties a lease to one node: only the home is worth that.
    kept = [(home, verdict)] if home is not None and verdict.mount else []
    left_out = []
    for mount in (each for each in mounts if each is not home):
        beside = _judge_beside(sources.get(mount["name"], {}), mount, seen)
        if beside is None:
            continue
        if beside.mount and (verdict.pinned or not beside.pinned):
            kept.append((mount, beside))
        else:
            left_out.append((str(mount["mountPath"]), beside.why))
    names = dict.fromkeys(mount["name"] for mount, _ in kept)
    return Files(
        way=way,
        code=verdict.code,
        why=verdict.why,
        volumes=tuple(dict(sources[name]) for name in names),
        mounts=tuple(_mounted(mount, each) for mount, each in kept),
        node=seen.server.name if seen.server and any(v.pinned for _, v in kept) else "",
        left_out=tuple(left_out),
    )


def home_claim(pod: Mapping[str, Any], container: Mapping[str, Any], home: str) -> str:
    """Return the claim that a lease would mount the server's home from, "" where there is none."""
    mount = _home_mount(container.get("volumeMounts") or (), home)
    if mount is None or mount.get("subPathExpr"):
        return ""
    for source in pod["spec"].get("volumes") or ():
        if source["name"] == mount["name"]:
            return str((source.get("persistentVolumeClaim") or {}).get("claimName", ""))
    return ""


def is_for_one_node(claim: Mapping[str, Any]) -> bool:
    """Whether pods may mount a claim, but on one node only."""
    modes = _modes(claim)
    return "ReadWriteOnce" in modes and "ReadWriteMany" not in modes


def _modes(claim: Mapping[str, Any]) -> set[str]:
    status_modes = (claim.get("status") or {}).get("accessModes")
    return set(status_modes or claim["spec"].get("accessModes") or ())


def _home_mount(mounts: Sequence[Mapping[str, Any]], home: str) -> Mapping[str, Any] | None:
    """Return the mount that the home lies on: the deepest one at or above it."""
    above = [each for each in mounts if _contains(each["mountPath"], home)]
    return max(above, key=lambda each: len(each["mountPath"].rstrip("/")), default=None)


def _contains(parent: str, path: str) -> bool:
    return (path.rstrip("/") + "/").startswith(parent.rstrip("/") + "/")


def _judge(source: Mapping[str, Any], mount: Mapping[str, Any], seen: Situation) -> _Verdict:
    if mount.get("subPathExpr"):
        return _Verdict("sub_path", "Its sub-path is made from the server's environment.")
    if any(kind in source for kind in SHARED_INLINE):
        return _Verdict("shared", "A network file system, open to every node.")
    if "persistentVolumeClaim" not in source:
        kind = next((key for key in source if key != "name"), "nothing")
        return _Verdict("no_claim", f"It is a volume of kind {kind}, not a claim.")
    reference = source["persistentVolumeClaim"]
    name = reference["claimName"]
    claim = seen.claims.get(name)
    if claim is None or not claim.get("spec", {}).get("volumeName"):
        return _Verdict("claim_unbound", f"Claim {name} is not known, or not bound yet.")
    verdict = _by_access(name, claim, seen)
    read_only = verdict.read_only or bool(reference.get("readOnly"))
    return _Verdict(verdict.code, verdict.why, read_only, verdict.pinned)


def _by_access(name: str, claim: Mapping[str, Any], seen: Situation) -> _Verdict:
    volume = seen.volumes.get(claim["spec"]["volumeName"])
    modes = _modes(claim)
    reach = [place for place in seen.candidates if _reaches(volume, place)]
    if modes & {"ReadWriteMany", "ReadOnlyMany"} and not reach:
        why = f"The volume of claim {name} cannot be reached from any node that can serve this."
        return _Verdict("out_of_reach", why)
    if "ReadWriteMany" in modes:
        return _Verdict("many", f"Claim {name} may be mounted on many nodes.")
    if is_for_one_node(claim):
        return _once(name, reach, seen)
    if "ReadOnlyMany" in modes:
        return _Verdict("read_only", f"Claim {name} may be read on many nodes.", True)
    return _Verdict("one_pod", f"Claim {name} may be mounted by a single pod only.")


def _once(name: str, reach: Sequence[KnownNode], seen: Situation) -> _Verdict:
    own = seen.server.name if seen.server else ""
    can_serve = any(place.name == own for place in reach)
    if own and can_serve and seen.granted in ("", own):
        why = f"Claim {name} is for one node, and the server's node {own} can serve."
        return _Verdict("same_node", why, pinned=True)
    but = "has nothing free" if own and can_serve else "cannot serve"
    where = f"node {own}" if own else "its node"
    why = f"Claim {name} is for one node and held by the server on {where}, which {but}."
    return _Verdict("other_node", why)


def _reaches(volume: Mapping[str, Any] | None, place: KnownNode) -> bool:
    """Whether the volume can be used on this node at all (a zone, a machine's own disk)."""
    if volume is None:
        return True  # not readable to us: the scheduler knows
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if not required:
        return True
    fields = {**place.labels, "metadata.name": place.name}
    terms = [
        [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]
        for term in required.get("nodeSelectorTerms") or ()
    ]
    return any_holds([term for term in terms if term], fields)


def _judge_beside(
    source: Mapping[str, Any], mount: Mapping[str, Any], seen: Situation
) -> _Verdict | None:
    """Judge a mount beside the home; ``None`` for what never travels and nobody misses."""
    if "persistentVolumeClaim" not in source and not any(k in source for k in SHARED_INLINE):
        return None
    return _judge(source, mount, seen)


def _mounted(mount: Mapping[str, Any], verdict: _Verdict) -> dict[str, Any]:
    kept = {key: mount[key] for key in _MOUNT_KEYS if mount.get(key)}
    if mount.get("readOnly") or verdict.read_only:
        kept["readOnly"] = True
    return kept
