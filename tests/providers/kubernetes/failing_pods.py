"""Pods that cannot start, each in its own way, and the code that their start must be given.

A real cluster is made to run them (``testcluster/starts.py``); what it said once is kept in
``statuses.json``, so that the reading is tested without one, too.
"""

from dataclasses import dataclass, field
from typing import Any

IMAGE = "local.test/gpulease:1"


@dataclass(frozen=True)
class Case:
    """One pod by what differs from one that runs, and what is to be read from it.

    ``stage`` is a stage that is read on the way, ``failed`` the code in the end ("" for a pod
    whose ``stage`` is the end).  ``does`` is what the test does to it once it runs.
    """

    name: str
    failed: str
    stage: str = ""
    pod: dict[str, Any] = field(default_factory=dict)
    container: dict[str, Any] = field(default_factory=dict)
    does: str = ""
    words: str = ""


def _needs(key: str, value: str) -> dict[str, Any]:
    wanted = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
    return {"affinity": {"nodeAffinity": required}}


def _command(text: str) -> dict[str, Any]:
    return {"command": ["python", "-c", text]}


def _volume(source: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": "home", **source}]}


_MOUNTED = {"volumeMounts": [{"name": "home", "mountPath": "/home/jovyan"}]}
_MANY = {"limits": {"nvidia.com/gpu": "90"}}

CASES = (
    Case("runs", "", "connecting"),
    Case("all-in-use", "capacity_taken", "scheduling", container={"resources": _MANY},
         words="Insufficient nvidia.com/gpu"),
    Case("no-memory-free", "capacity_taken", "scheduling",
         container={"resources": {"requests": {"memory": "9000Gi"}}}, words="Insufficient memory"),
    Case("no-such-node", "unschedulable", "scheduling", _needs("nvidia.com/gpu.product", "None"),
         words="didn't match Pod's node affinity"),
    Case("no-such-claim", "unschedulable", "scheduling",
         _volume({"persistentVolumeClaim": {"claimName": "none"}}), _MOUNTED,
         words='persistentvolumeclaim "none" not found'),
    Case("image-not-there", "image_error", container={"image": "local.test/none:1"},
         words="ErrImageNeverPull"),
    Case("image-not-pulled", "image_error", "pulling",
         container={"image": "registry.test/none:1", "imagePullPolicy": "Always"},
         words="ImagePullBackOff"),
    Case("image-misnamed", "image_error", container={"image": "local.test/NONE:1"},
         words="InvalidImageName"),
    Case("out-of-memory", "out_of_memory", container={
         "resources": {"limits": {"memory": "48Mi"}},
         **_command("held = bytearray(400 * 2**20); held[::4096] = b'x' * (100 * 2**10)")},
         words="OOMKilled, exit status 137"),
    Case("no-gpulease", "no_gpulease",
         container={"command": ["python", "-m", "gpulease.none"]}, words="No module named"),
    Case("ended-badly", "supervisor_failed",
         container=_command("import sys; sys.exit('no settings')"), words="no settings"),
    Case("ended-at-once", "supervisor_failed", container=_command("print('bye')"),
         words="Completed, exit status 0"),
    Case("no-such-program", "container_error", container={"command": ["no-such-program"]},
         words="no-such-program"),
    Case("no-such-setting", "container_error", container={
         "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "a"}}}]},
         words='configmap "none" not found'),
    Case("over-its-deadline", "start_timeout", pod={"activeDeadlineSeconds": 2},
         words="DeadlineExceeded"),
    Case("past-the-scheduler", "capacity_taken", pod={"nodeName": "node1"},
         container={"resources": _MANY}),
    Case("not-mounted", "volume_failed", "starting_container",
         _volume({"configMap": {"name": "none"}}), _MOUNTED, words="FailedMount"),
    Case("evicted", "evicted", does="evict", words="EvictionByEvictionAPI"),
    Case("claim-without-device", "capacity_taken", "scheduling",
         {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "none-free"}]},
         {"resources": {"claims": [{"name": "gpu"}]}}, words="cannot allocate all claims"),
    Case("claim-without-template", "claim_failed", "",
         {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "none"}]},
         {"resources": {"claims": [{"name": "gpu"}]}}, words='"none" not found'),
)  # fmt: skip


def pod_of(case: Case, namespace: str) -> dict[str, Any]:
    """Return the case's pod."""
    container = {
        "name": "companion",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", "import signal; signal.pause()"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container | case.container],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": case.name, "namespace": namespace},
        "spec": spec | case.pod,
    }


def claim_templates(namespace: str) -> list[dict[str, Any]]:
    """Return what the claim's case needs: a DeviceClass that nothing belongs to, a template."""
    api = {"apiVersion": "resource.k8s.io/v1"}
    exactly = {"deviceClassName": "gpulease-none"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return [
        {**api, "kind": "DeviceClass", "metadata": {"name": "gpulease-none"}, "spec": {}},
        {
            **api,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "none-free", "namespace": namespace},
            "spec": {"spec": spec},
        },
    ]
