"""A node agent on the test cluster: its pod, its driver's stand-in, who is where on the node."""

from __future__ import annotations

from pathlib import Path

from testcluster.api import Api, Object
from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.images import SERVICE_IMAGE
from testcluster.own_chart import render
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
    """Create what the shipped agent needs beside it and return its pod, as a DaemonSet makes it.

    Only what this cluster has elsewhere differs: the image, the kubelet's directory, no TLS, and
    the driver: a stand-in from the host in place of the runtime class.
    """
    agent = {each["kind"]: each for path, each in render() if path == "agent/agent.yaml"}
    account, settings, daemons = (
        agent[kind] for kind in ("ServiceAccount", "ConfigMap", "DaemonSet")
    )
    for each in (account, settings):
        each["metadata"]["namespace"] = namespace
        each.setdefault("data", {})
    settings["data"] = {"service-url": url}
    del account["data"]
    for each in (account, settings):
        cluster.api.create(each)
    spec = daemons["spec"]["template"]["spec"]
    del spec["runtimeClassName"]
    (container,) = spec["containers"]
    container["image"] = f"{SERVICE_IMAGE.rpartition(':')[0]}:{TAG}"
    container["imagePullPolicy"] = "Never"
    container["command"] = ["gpulease"]
    container["env"] += [
        {"name": "LD_LIBRARY_PATH", "value": "/driver/library"},
        {"name": "NVML_STAND_IN", "value": "/driver/state"},
    ]
    container["volumeMounts"].append({"name": "driver", "mountPath": "/driver", "readOnly": True})
    places = {
        "pod-resources": cluster.layout.pod_resources_socket.parent,
        "ledger": driver / "ledger",
        "driver": driver,
    }
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] not in places]
    for name, path in places.items():
        path.mkdir(exist_ok=True)
        spec["volumes"].append({"name": name, "hostPath": {"path": str(path), "type": "Directory"}})
    metadata = {"name": "agent", "namespace": namespace}
    metadata["labels"] = daemons["spec"]["template"]["metadata"]["labels"]
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
