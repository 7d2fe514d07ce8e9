"""What a notebook server without a GPU may have: one table for the guard and the admission policy.

A row says where in a pod's spec something stands, and how it is written as a *line*, such as
``resource memory`` or ``hostPath /srv/data``.  ``LISTED`` has the lines that every server may have,
``guard_usual`` those of usual sites; a site adds its own in the same words
(``c.GPULeaseSpawner.gpulease_allow``).  ``guard_lines`` walks the rows,
``tools/admission_policy.py`` writes the same rows as expressions of the API server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from gpulease.hub import gpu_names
from gpulease.hub.guard_usual import USUAL

CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

#: How what stands at a row's place becomes lines: each key with a quantity, each pair, the value
#: itself, a switch that is on, a condition on nodes, a toleration, pods to be beside, a volume.
Form = Literal["key", "pair", "value", "switch", "expression", "toleration", "term", "volume"]


@dataclass(frozen=True)
class Row:
    """One place of a pod's spec.

    Attributes:
        kind: the first word of its lines.
        at: field names joined by dots; ``[]`` is each item of a list, a leading ``*.`` each
            container of each kind.
        form: how what stands there is written.
    """

    kind: str
    at: str
    form: Form


_NODES: Final = "affinity.nodeAffinity"
_TERMS: Final = f"{_NODES}.{_REQUIRED}.nodeSelectorTerms[]"
_WISHES: Final = f"{_NODES}.{_PREFERRED}[].preference"
_PODS: Final = "affinity.podAffinity"

ROWS: Final[tuple[Row, ...]] = (
    Row("resource", "*.resources.limits", "key"),
    Row("resource", "*.resources.requests", "key"),
    Row("resource", "resources.limits", "key"),
    Row("resource", "resources.requests", "key"),
    Row("resource", "overhead", "key"),
    Row("volume", "volumes[]", "volume"),
    Row("volumeDevice", "*.volumeDevices[].devicePath", "value"),
    Row("privilege", "*.securityContext.privileged", "switch"),
    Row("privilege", "hostPID", "switch"),
    Row("privilege", "hostIPC", "switch"),
    Row("privilege", "hostNetwork", "switch"),
    Row("privilege", "securityContext.windowsOptions.hostProcess", "switch"),
    Row("privilege", "*.securityContext.windowsOptions.hostProcess", "switch"),
    Row("procMount", "*.securityContext.procMount", "value"),
    Row("capability", "*.securityContext.capabilities.add[]", "value"),
    Row("runtimeClassName", "runtimeClassName", "value"),
    Row("schedulerName", "schedulerName", "value"),
    Row("priorityClassName", "priorityClassName", "value"),
    Row("serviceAccountName", "serviceAccountName", "value"),
    Row("serviceAccountName", "serviceAccount", "value"),  # its old name, which still counts
    Row("node", "nodeSelector", "pair"),
    Row("node", f"{_TERMS}.matchExpressions[]", "expression"),
    Row("node", f"{_TERMS}.matchFields[]", "expression"),
    Row("node", f"{_WISHES}.matchExpressions[]", "expression"),
    Row("node", f"{_WISHES}.matchFields[]", "expression"),
    Row("toleration", "tolerations[]", "toleration"),
    Row("spread", "topologySpreadConstraints[].topologyKey", "value"),
    Row("pod", f"{_PODS}.{_REQUIRED}[]", "term"),
    Row("pod", f"{_PODS}.{_PREFERRED}[].podAffinityTerm", "term"),
)

#: What every server may have, by kind: ``{a,b}`` stands for one of these words.  A star stands for
#: any name that the site chose (a zone, the chart's release) and that names no GPU.
LISTED: Final[Mapping[str, tuple[str, ...]]] = {
    "resource": (
        "cpu",
        "memory",
        "ephemeral-storage",
        "hugepages-{64Ki,1Mi,2Mi,32Mi,512Mi,1Gi,2Gi,16Gi}",
    ),
    "volume": (
        *("emptyDir", "configMap", "secret", "projected", "downwardAPI", "image"),
        *("persistentVolumeClaim", "ephemeral", "nfs", "cephfs", "glusterfs", "azureFile"),
    ),
    # What container runtimes give to every container by themselves.
    "capability": (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ),
    "procMount": ("Default",),
    # Kubernetes' own, and the Zero to JupyterHub chart's, which begin with the release's name.
    "schedulerName": ("default-scheduler", "{,*-}user-scheduler"),
    "priorityClassName": ("*-default-priority",),
    "serviceAccountName": ("default",),
    "node": (
        "kubernetes.io/os={linux,windows}",
        "kubernetes.io/arch={amd64,arm,arm64,ppc64le,riscv64,s390x}",
        "hub.jupyter.org/node-purpose=user",
        *("topology.kubernetes.io/zone=*", "topology.kubernetes.io/region=*"),
    ),
    "toleration": (
        *("hub.jupyter.org/dedicated=user", "hub.jupyter.org_dedicated=user"),
        *("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
        "node.kubernetes.io/{memory,disk,pid}-pressure",
    ),
    "spread": ("kubernetes.io/hostname", "topology.kubernetes.io/{zone,region}"),
    "pod": tuple(
        f"{key}={value}"
        for key in ("component", "app.kubernetes.io/component")
        for value in ("hub", "proxy", "singleuser-server")
    ),
}
#: A volume's kinds that have a line of their own, by the field that tells them apart.
VOLUMES_BY: Final[Mapping[str, str]] = {"hostPath": "path", "csi": "driver", "flexVolume": "driver"}
#: The other kinds of volumes that there are, each with its name as its line.
VOLUMES_ELSE: Final = (
    *("awsElasticBlockStore", "azureDisk", "cinder", "fc", "flocker", "gcePersistentDisk"),
    *("gitRepo", "iscsi", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO"),
    *("storageos", "vsphereVolume"),
)
#: Of these kinds a site's own configuration of the spawner is on the list, too.
SEEDED: Final = frozenset(
    {
        *("runtimeClassName", "schedulerName", "priorityClassName", "serviceAccountName"),
        *("node", "toleration", "spread", "pod"),
    }
)

#: The chart's init container that closes the metadata address by a rule of the pod's own network.
#: It is privileged, so nothing of it may be other than the chart makes it, but for the address.
BLOCKER: Final = "block-cloud-metadata"
BLOCKER_COMMAND: Final = (
    *("iptables", "--append", "OUTPUT", "--protocol", "tcp", "--destination", ""),
    *("--destination-port", "80", "--jump", "DROP"),
)
BLOCKER_IMAGE: Final = "quay.io/jupyterhub/k8s-network-tools:*"
BLOCKER_CAPABILITY: Final = "NET_ADMIN"
#: By what else a container runs something, or something else.
BLOCKER_WITHOUT: Final = (
    *("args", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "restartPolicy"),
    *("startupProbe", "volumeDevices", "workingDir"),
)
#: The API server mounts an account's token here by itself.
BLOCKER_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def expression(patterns: Iterable[str]) -> str:
    """Return a regular expression (RE2's and Python's) that takes these lines and no other."""
    return "^(?:" + "|".join(_escaped(each) for each in patterns) + ")$"


def _escaped(pattern: str) -> str:
    return re.sub(r"[.+?()\[\]{}^$|\\]", r"\\\g<0>", pattern).replace("*", ".*")


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(expression(patterns), re.DOTALL)


def expression_of(table: Mapping[str, tuple[str, ...]]) -> str:
    """Return the expression of a shipped table's lines, in which ``{a,b}`` is one of these."""
    lines = expression(f"{kind} {each}" for kind in table for each in table[kind])
    return re.sub(r"\\\{(.*?)\\\}", lambda found: f"(?:{found[1].replace(',', '|')})", lines)


_LISTED, _USUAL = (re.compile(expression_of(each)) for each in (LISTED, USUAL))


def is_listed(line: str) -> bool:
    """Whether every server may have this."""
    if _USUAL.fullmatch(line) is not None:
        return True
    return _LISTED.fullmatch(line) is not None and not gpu_names.is_gpu_node("", line)


def allows(patterns: tuple[str, ...], line: str) -> bool:
    """Whether one of the patterns takes the line."""
    return _compiled(patterns).fullmatch(line) is not None
