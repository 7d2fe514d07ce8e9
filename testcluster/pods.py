"""What tests do with namespaces and pods: make them, wait for them, look at them."""

from collections.abc import Sequence

from testcluster.api import Api, Object
from testcluster.images import GPULEASE_IMAGE
from testcluster.layout import NODE
from tests.helpers import wait_for

PATIENCE = 180.0


def pod(
    namespace: str,
    name: str,
    *command: str,
    image: str = GPULEASE_IMAGE,
    limits: dict[str, str] | None = None,
    node: dict[str, str] | None = None,
    tolerations: Sequence[Object] = (),
) -> Object:
    """Return a pod's manifest: one container that sleeps unless told otherwise."""
    container: Object = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    container["command"] = list(command) or ["sleep", "3600"]
    container["resources"] = {"limits": limits or {}}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "dnsPolicy": "Default",
        "containers": [container],
    }
    if node:
        spec |= {"nodeSelector": node, "tolerations": list(tolerations)}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def gpu_pod(namespace: str, name: str, resource: str = "nvidia.com/gpu") -> Object:
    """Return a sleeping pod that holds one device and has written which."""
    script = "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 3600"
    return pod(namespace, name, "sh", "-c", script, limits={resource: "1"})


def wait_for_phase(api: Api, namespace: str, name: str, phase: str = "Running") -> Object:
    """Wait until a pod is in a phase and return it."""

    def found() -> Object:
        seen = api.pod(namespace, name)
        status = seen["status"]
        assert status.get("phase") == phase, f"{status.get('phase')}: {status.get('conditions')}"
        return seen

    return wait_for(found, PATIENCE, f"pod {name} {phase}")


def wait_for_address(api: Api, namespace: str, name: str) -> str:
    """Return a pod's address once the kubelet wrote it down: its processes may be heard before."""

    def found() -> str:
        status = api.pod(namespace, name)["status"]
        assert "podIP" in status, status
        return str(status["podIP"])

    return wait_for(found, PATIENCE, f"address of pod {name}")


def wait_until_gone(api: Api, path: str) -> None:
    wait_for(lambda: api.find(path) is None, PATIENCE, f"{path} gone")


def new_namespace(api: Api, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a namespace and wait until pods can be created in it."""
    metadata = {"name": name, "labels": labels or {}}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_for(lambda: api.find(account), PATIENCE, f"service account of {name}")


def delete_namespace(api: Api, name: str) -> None:
    """Delete a namespace; its pods are asked to go at once.

    It waits for those that hold devices of the node: the next test finds all of them free.
    """
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
    pods = f"/api/v1/namespaces/{name}/pods"
    for each in api.items(pods):
        api.remove(f"{pods}/{each['metadata']['name']}", options)
    api.delete(f"/api/v1/namespaces/{name}")

    def holders() -> list[str]:
        return [each["metadata"]["name"] for each in api.items(pods) if holds_devices(each)]

    wait_for(lambda: not holders(), PATIENCE, f"the devices of {name} to be free")


def holds_devices(found: Object) -> bool:
    """Whether a pod is on the real node and holds devices of its device plugin."""
    spec = found["spec"]
    asked = [each.get("resources", {}).get("limits", {}) for each in spec["containers"]]
    return spec.get("nodeName") == NODE and any("/" in name for each in asked for name in each)


def visible_device(api: Api, namespace: str, name: str) -> str:
    """Return what a `gpu_pod` saw."""
    return wait_for(lambda: api.logs(namespace, name).strip(), PATIENCE, f"words of {name}")
