"""Servers' pods of usual sites: what profiles, clouds, meshes and storage add to the chart's."""

from typing import Any

from tests.hub.pods import Change, container, expression, preferred, required, resources, spec


def _selects(key: str, value: str) -> Change:
    return spec(nodeSelector={key: value})


def _tolerates(key: str, value: str = "") -> Change:
    how = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return spec(tolerations=[{"key": key, "effect": "NoSchedule", **how}])


def _mounts(driver: str, **attributes: str) -> Change:
    source = {"driver": driver, "readOnly": True, "volumeAttributes": attributes}
    return spec(volumes=[{"name": "more", "csi": source}])


def _together(*changes: Change) -> Change:
    found: dict[str, Any] = {}
    for change in changes:
        found |= change["spec"]
    return {"spec": found}


_TYPE = "node.kubernetes.io/instance-type"
_MESH_CAPABILITIES = {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}

SITES: dict[str, Change] = {
    "GKE, workload identity": spec(serviceAccountName="user-sa", automountServiceAccountToken=True),
    "GKE, the metadata server": _selects("iam.gke.io/gke-metadata-server-enabled", "true"),
    "the chart's names by its release": spec(
        schedulerName="spring-user-scheduler", priorityClassName="spring-default-priority"
    ),
    "2i2c, nodes of one hub": _selects("2i2c/hub-name", "prod"),
    "GKE, a node pool": _selects("cloud.google.com/gke-nodepool", "user-pool"),
    "GKE, big memory": _selects(_TYPE, "n2-highmem-16"),
    "GKE, spot": _together(
        _selects("cloud.google.com/gke-spot", "true"),
        _tolerates("cloud.google.com/gke-spot", "true"),
    ),
    "GKE, preemptible, preferred": preferred(
        expression("cloud.google.com/gke-preemptible", "In", "true")
    ),
    "GKE, buckets": {
        **_mounts("gcsfuse.csi.storage.gke.io", bucketName="course"),
        "metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}},
    },
    "GKE, sandbox": _together(
        spec(runtimeClassName="gvisor"),
        _selects("sandbox.gke.io/runtime", "gvisor"),
        _tolerates("sandbox.gke.io/runtime", "gvisor"),
    ),
    "GKE, compute class": _selects("cloud.google.com/compute-class", "Balanced"),
    "EKS, a node group": _selects("eks.amazonaws.com/nodegroup", "notebooks"),
    "EKS, instance types": required(
        [expression(_TYPE, "In", "r5.xlarge", "r5.4xlarge", "m6i.2xlarge", "t3a.large")]
    ),
    "EKS, spot by Karpenter": _together(
        _selects("karpenter.sh/capacity-type", "spot"), _tolerates("karpenter.sh/capacity-type")
    ),
    "EKS, capacity": _selects("eks.amazonaws.com/capacityType", "SPOT"),
    "EKS, security groups": resources("vpc.amazonaws.com/pod-eni"),
    "EKS, shared files": _mounts("efs.csi.aws.com"),
    "AKS, a pool": _selects("kubernetes.azure.com/agentpool", "userpool"),
    "AKS, instance type": _selects(_TYPE, "Standard_E16s_v5"),
    "AKS, spot": _together(
        required([expression("kubernetes.azure.com/scalesetpriority", "In", "spot")]),
        _tolerates("kubernetes.azure.com/scalesetpriority", "spot"),
    ),
    "AKS, blobs": _mounts("blob.csi.azure.com", containerName="course"),
    "secrets of a vault": _mounts("secrets-store.csi.k8s.io", secretProviderClass="course"),
    "FUSE by a device plugin": resources("github.com/fuse"),
    "FUSE by another one": resources("smarter-devices/fuse"),
    "FUSE of the node": spec(
        volumes=[{"name": "more", "hostPath": {"path": "/dev/fuse", "type": "CharDevice"}}]
    ),
    "CVMFS": _mounts("cvmfs.csi.cern.ch"),
    "istio": {
        "metadata": {
            "annotations": {
                "sidecar.istio.io/inject": "true",
                "inject.istio.io/templates": "sidecar",
            }
        },
        **container(
            "initContainers",
            name="istio-init",
            args=["istio-iptables", "-p", "15001"],
            securityContext={"capabilities": _MESH_CAPABILITIES, "runAsUser": 0},
        ),
    },
    "Consul": container(
        "initContainers",
        name="consul-connect-inject-init",
        securityContext={"capabilities": _MESH_CAPABILITIES},
    ),
    "linkerd": container(
        "initContainers", name="linkerd-init", securityContext={"capabilities": _MESH_CAPABILITIES}
    ),
    "OpenShift, workers": _selects("node-role.kubernetes.io/worker", ""),
    "nodes for notebooks": _tolerates("dedicated", "jupyter"),
    "the clock of the node": spec(
        volumes=[{"name": "more", "hostPath": {"path": "/etc/localtime", "type": "File"}}]
    ),
}
