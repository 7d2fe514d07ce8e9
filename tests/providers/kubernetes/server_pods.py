"""API objects as a cluster shows them, for the tests of pure functions."""

from datetime import UTC, datetime, timedelta

from gpulease.policy.model import Lease, LeaseState
from gpulease.providers.kubernetes.manifests.manifest import PodSettings
from gpulease.providers.kubernetes.pod_resources.volumes import KnownNode, Situation

NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
SETTINGS = PodSettings(service_url="https://hub.test/services/gpulease", instance="hub a")
HOME = "/home/jovyan"


def server(**spec):
    """A server's pod as KubeSpawner makes it and the API server fills it in."""
    container = {
        "name": "notebook",
        "image": "hub.test/singleuser:5",
        "imagePullPolicy": "Always",
        "args": ["jupyterhub-singleuser"],
        "env": [
            {"name": "JUPYTERHUB_API_TOKEN", "value": "the-servers-token"},
            {"name": "JPY_API_TOKEN", "value": "the-servers-token"},
            {"name": "JUPYTERHUB_SERVICE_PREFIX", "value": "/user/jane/"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
            {"name": "GPULEASE_AUTOLOAD", "value": "1"},
            {"name": "COURSE", "value": "ml-1"},
            {"name": "HF_TOKEN", "value": "hf-of-jane"},
            {"name": "DATABASE", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
            {"name": "MEM_LIMIT", "value": "1073741824"},
            {"name": "EMPTY"},
        ],
        "resources": {
            "limits": {"cpu": "2", "memory": "4Gi"},
            "requests": {"cpu": "500m", "memory": "1Gi"},
        },
        "securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": True},
        "volumeMounts": [
            {"name": "home", "mountPath": HOME},
            {
                "name": "kube-api-access-x",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            },
        ],
    }
    return {
        "metadata": {
            "name": "jupyter-jane",
            "namespace": "hub",
            "uid": "b1f1f9a2",
            "labels": {"component": "singleuser-server"},
        },
        "spec": {
            "containers": [{"name": "sidecar", "image": "other"}, container],
            "nodeName": "cpu-1",
            "securityContext": {
                "fsGroup": 100,
                "supplementalGroups": [2000],
                "sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}],
            },
            "serviceAccountName": "jane-cloud",
            "imagePullSecrets": [{"name": "image-pull"}],
            "dnsPolicy": "ClusterFirst",
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "claim-jane"}},
                {"name": "kube-api-access-x", "projected": {"sources": []}},
            ],
        }
        | spec,
    }


def notebook(pod):
    return next(c for c in pod["spec"]["containers"] if c["name"] == "notebook")


def claim(name, *modes, volume="pv-1"):
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": list(modes), "volumeName": volume},
        "status": {"accessModes": list(modes), "phase": "Bound"},
    }


def volume(name="pv-1", **where):
    """A PersistentVolume; ``where`` are labels that its nodes must have."""
    wanted = [{"key": k, "operator": "In", "values": [v]} for k, v in where.items()]
    terms = [{"matchExpressions": wanted}]
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if where else {}
    return {"metadata": {"name": name}, "spec": spec}


CPU = KnownNode("cpu-1", {"zone": "a"})
GPU_A = KnownNode("gpu-1", {"zone": "a"})
GPU_B = KnownNode("gpu-2", {"zone": "b"})


def situation(*modes, place=CPU, candidates=(GPU_A, GPU_B), because="", pv=None, granted=""):
    return Situation(
        claims={"claim-jane": claim("claim-jane", *modes)} if modes else {},
        volumes={"pv-1": pv} if pv else {},
        server=place,
        candidates=candidates,
        home=HOME,
        mirror_because=because,
        granted=granted,
    )


def lease(**changed):
    return Lease(
        **{
            "id": "5f2a9c0d1e2f3a4b",
            "user": "jane@x.org",
            "server": "",
            "gpu_class": "gpu",
            "count": 1,
            "ticket": (NOW - timedelta(minutes=1), 7),
            "created": NOW - timedelta(minutes=1),
            "state": LeaseState.STARTING,
            "project": "course: ml",
            "attempt": 2,
            "devices": ("gpu-1/nvidia.com/gpu/0",),
        }
        | changed
    )
