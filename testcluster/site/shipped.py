"""Applies what gpulease's chart renders to, as a site would have it, to the test cluster.

What is left out runs as a process here (service) or is another test's (agent).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testcluster import own_chart
from testcluster.api import Api, Object, path_of
from testcluster.pods import new_namespace

#: Storage class of the homes.
HOMES = "homes"
#: As many as all sites of a cluster may have people: a home stays its person's when a site ends.
_HOMES = 40
HUB_NAMESPACE = own_chart.SERVERS
OWN_NAMESPACE = own_chart.SYSTEM
#: What only some sites switch on.
USER_NAMESPACES, KUEUE, WARM, SEVERAL_NODES = (
    "user-namespaces",
    "kueue",
    "warm",
    "several-nodes",
)
_LEFT_OUT = {"Deployment", "DaemonSet", "Service", "PersistentVolumeClaim"}
#: What the chart's own hub may do, as far as KubeSpawner needs it here.
_HUB_RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]


def documents(feature: str = "", values: Mapping[str, Any] | None = None) -> Iterator[Object]:
    """Yield what every site has, or what one feature brings, with this cluster's images."""
    ours = {"leases": {"images": ["local.test/*"]}}
    yield from own_chart.documents(feature, {**ours, **(values or {})})


def apply(api: Api, feature: str = "", values: Mapping[str, Any] | None = None) -> None:
    """Create or change accounts, rights and policies, and the two namespaces.

    Without values of a site's own, the hub's account is made, too; the hub's chart brings its own.
    """
    hub = (values or {}).get("hub", {}).get("namespace", HUB_NAMESPACE)
    for name in (hub, OWN_NAMESPACE):
        if api.find(f"/api/v1/namespaces/{name}") is None:
            new_namespace(api, name)
    for document in documents(feature, values):
        if document["kind"] not in _LEFT_OUT:
            _put(api, document)
    if feature or values:
        return
    for kind, rest in _hub_account():
        version = "v1" if kind == "ServiceAccount" else "rbac.authorization.k8s.io/v1"
        metadata = {"name": "hub", "namespace": HUB_NAMESPACE}
        api.ensure({"apiVersion": version, "kind": kind, "metadata": metadata, **rest})


def remove(api: Api, feature: str) -> None:
    """Remove what `apply` made of a feature."""
    for document in documents(feature):
        api.remove(path_of(document))


def _put(api: Api, document: Object) -> None:
    if api.find(path_of(document)) is None:
        api.ensure(document)
    else:
        api.patch(path_of(document), document)


def _hub_account() -> Iterator[tuple[str, Object]]:
    yield "ServiceAccount", {}
    yield "Role", {"rules": _HUB_RULES}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hub"}
    subject = {"kind": "ServiceAccount", "name": "hub", "namespace": HUB_NAMESPACE}
    yield "RoleBinding", {"roleRef": role, "subjects": [subject]}


def write_kubeconfig(api: Api, path: Path, namespace: str, account: str) -> None:
    """Write a kubeconfig that acts as a service account."""
    document = json.loads(api.kubeconfig.read_text(encoding="utf-8"))
    document["users"][0]["user"] = {"token": api.as_account(namespace, account).token}
    document["contexts"][0]["context"]["namespace"] = namespace
    path.touch(mode=0o600)
    path.write_text(json.dumps(document), encoding="utf-8")


def add_volumes(api: Api, directory: Path) -> None:
    """Create volumes that may be mounted on many nodes; each is a directory below `directory`."""
    for index in range(_HOMES):
        home = directory / f"home-{index}"
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o777)  # the servers' user is not root
        api.ensure(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"home-{index}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": HOMES,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(home)},
                },
            },
        )
