"""Kueue beside the test cluster: its definitions, its webhooks and its one process.

It manages pods of the namespaces that it is given and nothing else.  Like every program of the
cluster it runs inside the cluster's network; the API server reaches its webhooks by an address.
"""

import base64
import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml

from gpulease.companion.tree import die_with_parent
from testcluster.api import Api, ApiError, Object, path_of
from testcluster.build import KUEUE, beside_program
from testcluster.cluster import Cluster
from testcluster.layout import NODE_ADDRESS
from testcluster.pki import Authority
from testcluster.pods import wait_until_gone
from tests.helpers import wait_for

_PORT, _HEALTH, _METRICS = 9443, 18081, 18082
_GROUP = "kueue.x-k8s.io/v1beta1"
_START_MAX = 120.0
#: The resources whose webhooks are wanted; those of jobs would meet other tests' objects.
_ABOUT = {"pods", "workloads", "workloads/status", "clusterqueues", "resourceflavors", "cohorts"}


def why_no_kueue() -> str:
    """Return why Kueue cannot run here, or an empty string."""
    return "" if beside_program(KUEUE).exists() else "kueue is not built (make setup-cluster)"


@contextmanager
def running_kueue(cluster: Cluster, directory: Path, namespaces: Sequence[str]) -> Iterator[None]:
    """Run Kueue over the pods of these namespaces; all of it goes afterwards."""
    api, authority = cluster.api, Authority.new()
    text = beside_program(KUEUE).with_name("kueue.yaml").read_text(encoding="utf-8")
    given = [each for each in yaml.safe_load_all(text) if each]
    hooks = [_hook(each, authority, namespaces) for each in given if "webhooks" in each]
    with contextlib.ExitStack() as made:
        for each in given:
            if each["kind"] == "CustomResourceDefinition":
                api.create(_plain(each))
                made.callback(wait_until_gone, api, path_of(each))
                made.callback(api.delete, path_of(each))
                wait_for(partial(_established, api, path_of(each)), _START_MAX, path_of(each))
        made.callback(_remove_all, api, namespaces)
        process = made.enter_context(_process(cluster, directory, authority, namespaces))
        for each in hooks:
            api.create(each)
            made.callback(api.delete, path_of(each))

        def answers() -> bool:
            assert process.poll() is None, (directory / "kueue.log").read_text()[-3000:]
            flavor = {"apiVersion": _GROUP, "kind": "ResourceFlavor"}
            with contextlib.suppress(ApiError):
                api.create(flavor | {"metadata": {"name": "probe"}}, dryRun="All")
                return True
            return False

        wait_for(answers, _START_MAX, "Kueue's webhooks to answer")
        yield


@contextmanager
def _process(
    cluster: Cluster, directory: Path, authority: Authority, namespaces: Sequence[str]
) -> "Iterator[subprocess.Popen[bytes]]":
    # Where it wants its metrics' certificate is no setting: it sees an /etc of its own.
    certificates = directory / "etc" / "kueue" / "metrics" / "certs"
    certificates.mkdir(parents=True)
    (directory / "work").mkdir()
    layers = f"lowerdir=/etc,upperdir={directory}/etc,workdir={directory}/work"
    script = f'mount -t overlay overlay -o {layers} /etc && exec "$@"'
    pair = authority.server(NODE_ADDRESS).decode("ascii")
    certificate, mark, key = pair.partition("-----BEGIN EC")
    (certificates / "tls.crt").write_text(certificate, encoding="ascii")
    (certificates / "tls.key").write_text(mark + key, encoding="ascii")
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{_HEALTH}"},
        "metrics": {"bindAddress": f"127.0.0.1:{_METRICS}"},
        "webhook": {"port": _PORT, "host": NODE_ADDRESS, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 100, "burst": 200},
        "managedJobsNamespaceSelector": _in(namespaces),
        "integrations": {"frameworks": ["pod"]},
    }
    (directory / "kueue-config.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with (directory / "kueue.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"),
                str(beside_program(KUEUE)),
                f"--config={directory}/kueue-config.yaml",
                f"--kubeconfig={cluster.layout.kubeconfig}",
                "--feature-gates=VisibilityOnDemand=false",
            ],
            env={**os.environ, "POD_NAMESPACE": "kube-system"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def _in(namespaces: Sequence[str]) -> Object:
    name = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": name, "operator": "In", "values": list(namespaces)}]}


def _hook(document: Object, authority: Authority, namespaces: Sequence[str]) -> Object:
    """Return a webhook configuration that calls the node's address, for what is wanted alone."""
    bundle = base64.b64encode(authority.pem().encode()).decode("ascii")
    wanted = []
    for each in document["webhooks"]:
        about = {name for rule in each["rules"] for name in rule["resources"]}
        if not about <= _ABOUT:
            continue
        path = each["clientConfig"]["service"]["path"]
        url = f"https://{NODE_ADDRESS}:{_PORT}{path}"
        each["clientConfig"] = {"url": url, "caBundle": bundle}
        if "pods" in about:
            each["namespaceSelector"] = _in(namespaces)
        wanted.append(each)
    metadata = {"name": f"kueue-{document['metadata']['name']}"}
    return document | {"metadata": metadata, "webhooks": wanted}


def _plain(definition: Object) -> Object:
    """Return a definition without conversion between versions: there is no webhook for it here."""
    definition.pop("status", None)
    definition["spec"].pop("conversion", None)
    return definition


def _established(api: Api, path: str) -> bool:
    found = api.get(path).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


def _remove_all(api: Api, namespaces: Sequence[str]) -> None:
    """Delete what tests made, with the finalizers that Kueue, which is gone, would take off."""
    for namespace in namespaces:
        for each in api.items(f"/api/v1/namespaces/{namespace}/pods"):
            path = f"/api/v1/namespaces/{namespace}/pods/{each['metadata']['name']}"
            with contextlib.suppress(ApiError):
                api.patch(path, {"metadata": {"finalizers": []}})
    for plural in ("workloads", "localqueues", "clusterqueues", "resourceflavors"):
        for each in api.items(f"/apis/{_GROUP}/{plural}"):
            meta = each["metadata"]
            inside = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
            path = f"/apis/{_GROUP}/{inside}{plural}/{meta['name']}"
            with contextlib.suppress(ApiError):
                api.patch(path, {"metadata": {"finalizers": []}})
                api.delete(path)


def queue(api: Api, name: str, quota: int, local: dict[str, str]) -> None:
    """Make a ClusterQueue with so many GPUs, and a LocalQueue in each namespace: name -> namespace.

    Who has a higher priority preempts whoever has a lower one.
    """
    flavor = {"apiVersion": _GROUP, "kind": "ResourceFlavor", "metadata": {"name": name}}
    amounts = {"cpu": "1000", "memory": "1000Gi", "nvidia.com/gpu": str(quota)}
    resources = [{"name": each, "nominalQuota": amount} for each, amount in amounts.items()]
    api.create(flavor)
    api.create(
        {
            "apiVersion": _GROUP,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": {},
                "queueingStrategy": "BestEffortFIFO",
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [
                    {
                        "coveredResources": list(amounts),
                        "flavors": [{"name": name, "resources": resources}],
                    }
                ],
            },
        }
    )
    for each, namespace in local.items():
        metadata = {"name": each, "namespace": namespace}
        api.create(
            {
                "apiVersion": _GROUP,
                "kind": "LocalQueue",
                "metadata": metadata,
                "spec": {"clusterQueue": name},
            }
        )


def priority(api: Api, name: str, value: int) -> Object:
    """Make one of Kueue's priorities for pods that name it."""
    return api.create(
        {
            "apiVersion": _GROUP,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
    )


def workloads(api: Api, namespace: str) -> list[Object]:
    """Return Kueue's Workloads of a namespace."""
    return api.items(f"/apis/{_GROUP}/namespaces/{namespace}/workloads")
