"""The companion's container: what it runs as, with which environment and how much of what.

What is copied from the server's container and what never is: no token of the server, nothing of
the hub, no privilege.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gpulease.policy.model import GPUClass, Lease
from gpulease.policy.pods import AskKind, PodAsk, Sharing
from gpulease.protocol import names as protocol
from gpulease.protocol.variables import is_secret

#: Where the projected token lies in the pod.
TOKEN_DIRECTORY: Final = "/var/run/secrets/gpulease"  # noqa: S105 - a path
TOKEN_FILE: Final = f"{TOKEN_DIRECTORY}/token"
COMMAND: Final = ("python", "-m", "gpulease.companion", "--pod")

#: Variables of the server that mean the server, the hub, its devices or its image, not the
#: student's work.
_OF_THE_SERVER: Final = re.compile(
    r"(JUPYTERHUB|JPY|JUPYTER|GPULEASE|NVIDIA|CUDA|HIP|ROCR|NB|CONFIGPROXY|MEM|CPU)_.*"
    r"|[A-Z0-9_]+_VISIBLE_DEVICES|HOME|HOSTNAME|PATH|PWD|PYTHONHOME|LD_.*"
)
_POD_SECURITY: Final = (
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "fsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxOptions",
    "seccompProfile",
)
_CONTAINER_SECURITY: Final = (
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "seLinuxOptions",
    "seccompProfile",
    "readOnlyRootFilesystem",
)
_SECCOMP: Final = {"type": "RuntimeDefault"}
#: What PodSecurity's ``restricted`` lets a container be; a server may be more.
_SELINUX_TYPES: Final = frozenset(
    {"container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)


def pod_security(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod's security context: the server's ids, so that files keep their owner.

    ``OnRootMismatch``: the home is not walked through at each start.
    """
    kept = _confined(server["spec"].get("securityContext") or {}, _POD_SECURITY)
    if "fsGroup" in kept:
        kept["fsGroupChangePolicy"] = "OnRootMismatch"
    return {"seccompProfile": dict(_SECCOMP)} | kept


def container_security(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container's security context: the server's ids without any privilege."""
    kept = _confined(container.get("securityContext") or {}, _CONTAINER_SECURITY)
    # An image says by itself as whom it runs; as root only where the server does so, too.
    never_root = {} if kept.get("runAsUser") == 0 else {"runAsNonRoot": True}
    return (
        kept
        | never_root
        | {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        }
    )


def _confined(own: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    """Return what is copied of a server's security context, without what loosens it.

    An SELinux level stays: by it a volume's files are its pods' own.
    """
    kept = {key: own[key] for key in wanted if own.get(key) is not None}
    if (kept.get("seccompProfile") or {}).get("type") == "Unconfined":
        del kept["seccompProfile"]
    if linux := kept.pop("seLinuxOptions", None):
        level = {"level": linux["level"]} if linux.get("level") else {}
        kind = {"type": linux["type"]} if linux.get("type") in _SELINUX_TYPES else {}
        kept |= {"seLinuxOptions": level | kind} if level or kind else {}
    return kept


def computed(container: Mapping[str, Any], ask: PodAsk) -> dict[str, dict[str, str]]:
    """Return CPU, memory and ephemeral storage: the class's where it says, else the server's."""
    own = container.get("resources") or {}
    return {
        "requests": dict(ask.requests) or _plain(own.get("requests")),
        "limits": dict(ask.limits) or _plain(own.get("limits")),
    }


def _plain(quantities: Mapping[str, Any] | None) -> dict[str, str]:
    wanted = ("cpu", "memory", "ephemeral-storage")
    return {key: str(value) for key, value in (quantities or {}).items() if key in wanted}


def environment(
    lease: Lease,
    container: Mapping[str, Any],
    ask: PodAsk,
    told: Mapping[str, str],
    extra: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the container's environment: the student's plain variables, then gpulease's own.

    Args:
        told: what the companion learns beside the lease's own names.
        extra: the site's, and those that come from the class.
    """
    values = _followed(container) | dict(extra) | dict(told)
    values |= {
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        protocol.ENV_LEASE: lease.id,
        protocol.ENV_ATTEMPT: str(lease.attempt),
        protocol.ENV_USER: lease.user,
        protocol.ENV_SERVER: lease.server,
        protocol.ENV_TOKEN_FILE: TOKEN_FILE,
    }
    if ask.kind is AskKind.DRA:
        # A claim's devices come by CDI; an image that says "all" must not get the others, too.
        values["NVIDIA_VISIBLE_DEVICES"] = "void"
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        {"name": protocol.ENV_POD_IP, "valueFrom": address},
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def node_of_several(lease: Lease, rank: int) -> dict[str, str]:
    """Return the variables that say which node of its lease a pod is, where there are several."""
    if lease.nodes == 1:
        return {}
    return {
        protocol.ENV_RANK: str(rank),
        protocol.ENV_NODE_COUNT: str(lease.nodes),
        protocol.ENV_COUNT: str(lease.count),
    }


def mps_bounds(gpu_class: GPUClass, ask: PodAsk, count: int) -> dict[str, str]:
    """Return the variables by which each process of a lease keeps to its share under MPS.

    They can only narrow what the card's MPS server allows.  Of several shares nobody knows how
    many are of one card, so only the server bounds those.
    """
    if ask.kind is not AskKind.SHARED or ask.sharing is not Sharing.MPS or count > 1:
        return {}
    found = {}
    if gpu_class.memory >= 2**20:
        found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={gpu_class.memory // 2**20}M"
    if ask.compute_percent:
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(ask.compute_percent)
    return found


def _followed(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the server's plain variables; what comes from a Secret or names one stays there."""
    return {
        each["name"]: str(each.get("value") or "")
        for each in container.get("env") or ()
        if "valueFrom" not in each
        and not _OF_THE_SERVER.fullmatch(each["name"].upper())
        and not is_secret(each["name"])
    }
