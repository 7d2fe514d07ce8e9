"""A node agent on the test cluster: its pod, its driver's stand-in, who is where on the node."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.api import Api, Object
from tests.cluster.cluster import Cluster
from tests.cluster.devices import card
from tests.cluster.images import SERVICE_IMAGE
from tests.gpus import stand_in

#: Builds of this checkout, beside those that other tests run.
TAG = "agent"
ACCOUNT = "gpulease-agent"
MIG = tuple(f"MIG-{n:08x}-0000-4000-8000-000000000000" for n in range(2))


def driver_of_the_cluster(path: Path) -> stand_in.Driver:
    """Return a driver that shows the cards of the cluster's device plugin."""
    driver = stand_in.Driver(path / "state", 6)
    for number in range(6):
        driver.set({f"{number}.uuid": card(number)})
    driver.set({"5.mig": 2})
    for number, uuid in enumerate(MIG):
        driver.set({f"5.mig{number}.uuid": uuid, f"5.mig{number}.gi": number + 1})
        driver.set({f"5.mig{number}.name": "NVIDIA 3g.20gb", f"5.mig{number}.memory_total": 2**34})
    return driver


def agent_pod(cluster: Cluster, namespace: str, url: str, driver: Path) -> Object:
    """Return the agent's pod as the shipped one, but for the driver: a stand-in from the host."""
    words = ["gpulease", "agent", "--service", url, "--plain-http", "--ledger", "/ledger/ledger"]
    variables = {
        "GPULEASE_TOKEN_FILE": "/var/run/secrets/gpulease/token",
        "LD_LIBRARY_PATH": "/driver/library",
        "NVML_STAND_IN": "/driver/state",
    }
    mounts = {
        "token": "/var/run/secrets/gpulease",
        "pod-resources": "/var/lib/kubelet/pod-resources",
        "driver": "/driver",
    }
    container: Object = {
        "name": "agent",
        "image": f"{SERVICE_IMAGE.rpartition(':')[0]}:{TAG}",
        "imagePullPolicy": "Never",
        "command": words,
        "env": [{"name": name, "value": value} for name, value in variables.items()]
        + [{"name": "GPULEASE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "volumeMounts": [
            {"name": name, "mountPath": path, "readOnly": True} for name, path in mounts.items()
        ]
        + [{"name": "ledger", "mountPath": "/ledger"}, {"name": "tmp", "mountPath": "/tmp"}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8892},
            "initialDelaySeconds": 10,
        },
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    token = {"audience": "gpulease", "expirationSeconds": 3600, "path": "token"}
    volumes: list[Object] = [
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        _of_host("pod-resources", cluster.layout.pod_resources_socket.parent),
        _of_host("driver", driver),
        {"name": "ledger", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    spec = {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "hostPID": True,
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": volumes,
    }
    metadata = {"name": "agent", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def make_account(api: Api, namespace: str) -> None:
    """Create the agent's service account; it gets no right at all."""
    metadata = {"name": ACCOUNT, "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def processes_of(uid: str) -> dict[int, int]:
    """Return a pod's processes: number on this machine -> number on the cluster's node.

    The node's own processes live in a process namespace below this machine's.
    """
    found = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if f"pod{uid}/" not in (path / "cgroup").read_text():
                continue
            status = (path / "status").read_text()
        except OSError:
            continue  # it ended meanwhile
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        found[int(path.name)] = int(numbers[2])
    return found


def put_driver(path: Path) -> stand_in.Driver:
    """Make a directory with the stand-in's library and its state, for a pod to mount."""
    (path / "library").mkdir(parents=True)
    library = stand_in.build() / stand_in.LIBRARY
    (path / "library" / stand_in.LIBRARY).write_bytes(library.read_bytes())
    path.chmod(0o755)
    return driver_of_the_cluster(path)


def _of_host(name: str, path: Path) -> Object:
    return {"name": name, "hostPath": {"path": str(path), "type": "Directory"}}
