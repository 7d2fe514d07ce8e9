"""Applies the manifests that gpulease ships, as a site would, to the test cluster.

Changed are only what each site sets for itself: the images and claims that lease pods may have.
What is left out runs as a process here (service) or is another test's (agent).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from testcluster.api import Api, ApiError, Object, path_of
from testcluster.pods import new_namespace
from testcluster.processes import REPOSITORY

HUB_NAMESPACE = "jupyterhub"
OWN_NAMESPACE = "gpulease-system"
SHIPPED = REPOSITORY / "helm-values"
#: What only hubs with a namespace for each user apply.
USER_NAMESPACES = SHIPPED / "user-namespaces"
#: What only clusters with Kueue apply.
KUEUE = SHIPPED / "kueue"
#: What only policies with pods that stand ready need.
WARM = SHIPPED / "warm"
#: What only requests for several nodes need.
SEVERAL_NODES = SHIPPED / "several-nodes"
_LEFT_OUT = {"Kustomization", "Deployment", "DaemonSet", "Service", "PersistentVolumeClaim"}
#: What the chart's own hub may do, as far as KubeSpawner needs it here.
_HUB_RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]


def documents(folder: Path = SHIPPED) -> Iterator[Object]:
    """Yield every shipped object; those for some sites only from their own folder."""
    apart = {folder / each.name for each in (USER_NAMESPACES, KUEUE, WARM, SEVERAL_NODES)}
    for path in sorted(folder.rglob("*.yaml")):
        if not apart.isdisjoint(path.parents):
            continue
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and "kind" in document:
                yield document


def apply(api: Api, folder: Path = SHIPPED) -> None:
    """Create the namespaces, accounts, rights and policies; what is there stays.

    `folder` is the shipped one, a site's copy of it, or one for user namespaces.
    """
    for document in sorted(documents(folder), key=lambda each: each["kind"] != "Namespace"):
        if document["kind"] in _LEFT_OUT or document["apiVersion"].startswith("monitoring."):
            continue
        if document["kind"] == "Namespace":
            name, labels = document["metadata"]["name"], document["metadata"].get("labels", {})
            if api.find(f"/api/v1/namespaces/{name}") is None:
                new_namespace(api, name, labels)
            else:
                api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}})
        else:
            create(api, _for_this_site(document))
    if folder != SHIPPED:
        return
    for kind, rest in _hub_account():
        version = "v1" if kind == "ServiceAccount" else "rbac.authorization.k8s.io/v1"
        metadata = {"name": "hub", "namespace": HUB_NAMESPACE}
        create(api, {"apiVersion": version, "kind": kind, "metadata": metadata, **rest})


def remove(api: Api, folder: Path) -> None:
    """Remove what `apply` made of one of the folders for some sites only."""
    for document in documents(folder):
        if document["kind"] in _LEFT_OUT:
            continue
        path = path_of(_for_this_site(document))
        if api.find(path) is not None:
            api.delete(path)


def create(api: Api, document: Object) -> None:
    """Create an object unless it is there."""
    try:
        api.create(document)
    except ApiError as error:
        if error.status != 409:
            raise RuntimeError(f"{path_of(document)}: {error}") from error


def _for_this_site(document: Object) -> Object:
    text = json.dumps(document)
    changed: Object = json.loads(text.replace(r"ghcr\\.io/example/.*", r"local\\.test/.*"))
    return changed


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
