"""The labels and annotations that gpulease writes and reads on Kubernetes objects.

Labels select and must be short and plain, so they hold *safe* forms; annotations describe and hold
the exact text.  The spawner and the lease pod's manifest choose which object gets which.  Here is
too in which namespace this process's own pod is.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

#: Prefix of every name of ours.
PREFIX: Final = "gpulease/"

# Labels of lease pods; all but the first three stand on server pods, too, or on nodes.
LEASE: Final = PREFIX + "lease"
ATTEMPT: Final = PREFIX + "attempt"
#: Which node of its lease a pod is, where the lease has several.
RANK: Final = PREFIX + "rank"
#: Which installation a pod or node belongs to: two hubs never share a pool by accident.
INSTANCE: Final = PREFIX + "instance"
CLASS: Final = PREFIX + "class"
POOL: Final = PREFIX + "pool"
#: On a node: whether the memory of its GPUs corrects errors, ``true`` or ``false``. A site says so
#: itself: neither feature discovery nor NVIDIA's DRA driver tells it.
ECC: Final = PREFIX + "ecc"
NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"

#: Values of ``NAME`` and ``COMPONENT``; NetworkPolicies and admission policies select by them.
APP: Final = "gpulease"
LEASE_COMPONENT: Final = "lease"
AGENT_COMPONENT: Final = "agent"
SERVICE_COMPONENT: Final = "service"
CLAIM_COMPONENT: Final = "claim"

#: On a pod that is only offered to the API server (dry run), to see whether a policy refuses it.
PROBE: Final = PREFIX + "probe"

#: On a pod that stands ready for the next lease of its class, until it is somebody's.
WARM: Final = PREFIX + "warm"

# Annotations of server pods (written by the spawner) and of lease pods: the exact names.
USER: Final = PREFIX + "user"
SERVER: Final = PREFIX + "server"

# Annotations of lease pods alone: what a service whose store was restored needs to adopt one.
PROJECT: Final = PREFIX + "project"
GPU_CLASS: Final = PREFIX + "gpu-class"
#: The GPUs of all its pods together, and how many pods those are where there are several.
COUNT: Final = PREFIX + "count"
NODES: Final = PREFIX + "nodes"
CARD_PARTS: Final = PREFIX + "card-parts"
CREATED: Final = PREFIX + "created"
GRANTED: Final = PREFIX + "granted"
ENDS: Final = PREFIX + "ends"
PRICE: Final = PREFIX + "price"
KERNEL: Final = PREFIX + "kernel"
SERVER_UID: Final = PREFIX + "server-uid"
#: The place in the queue: an instant and a number.
TICKET: Final = PREFIX + "ticket"
#: How the student's files reach the pod: ``mount`` or ``mirror``, and why.
FILES: Final = PREFIX + "files"
FILES_WHY: Final = PREFIX + "files-why"
#: Of a pod that was started ahead: a digest of what it was made from.
SHAPE: Final = PREFIX + "shape"
#: The granted slots, comma separated: what the planner chose, not where the pod landed.
SLOTS: Final = PREFIX + "slots"

#: Kubernetes's bound on a label's value and on a DNS label.
MAX_VALUE: Final = 63

_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MARK = "--"
_DIGEST = 8


def is_label_value(text: str) -> bool:
    """Whether Kubernetes takes ``text`` as a label's value (the empty text it does take)."""
    return not text or _VALUE.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether Kubernetes takes ``text`` as the name of a pod, claim template or service."""
    return _NAME.fullmatch(text) is not None


def label_value(text: str) -> str:
    """Return a label's value for any text: different texts give different values.

    A text that may stand as it is does; any other keeps what it can and ends in a digest of the
    whole: ``jane@x.org`` -> ``jane-x.org--d2e64a9f`` (digits differ).
    """
    if is_label_value(text) and _MARK not in text:
        return text
    return _digested(re.sub(r"[^-A-Za-z0-9_.]+", "-", text), text, "-_.")


def object_name(text: str) -> str:
    """Return an object's name (a DNS label) for any text: different texts give different names."""
    if is_name(text) and _MARK not in text:
        return text
    return _digested(re.sub(r"[^-a-z0-9]+", "-", text.lower()), text, "-")


def _digested(readable: str, text: str, edges: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    kept = readable[: MAX_VALUE - _DIGEST - len(_MARK)].strip(edges)
    return f"{kept}{_MARK}{digest}" if kept else f"x{_MARK}{digest}"


def lease_pod_name(lease_id: str, attempt: int, rank: int = 0) -> str:
    """Return the lease pod's name: creating the same attempt twice is a conflict (HTTP 409)."""
    node = f"-{rank}" if rank else ""
    return object_name(f"gpulease-{lease_id}-{attempt}{node}")


def lease_selector(instance: str) -> str:
    """Return the label selector of every lease pod of one installation."""
    return f"{NAME}={APP},{COMPONENT}={LEASE_COMPONENT},{INSTANCE}={label_value(instance)}"


_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace() -> str:
    """Return the namespace of the pod that this process runs in, ``default`` outside of one."""
    try:
        return _OWN_NAMESPACE.read_text(encoding="ascii").strip() or "default"
    except OSError:
        return "default"
