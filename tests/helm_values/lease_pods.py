"""A lease pod as the service makes it, ways to change it, and what the API server says to it."""

import copy
from collections.abc import Callable
from typing import Any

#: As the shipped one, under a name of these tests' own.
PRIORITY = "gpulease-test-never"
IMAGE = "quay.io/jupyter/scipy-notebook:2026-01-01"

Change = Callable[[dict[str, Any]], Any]


def lease_pod() -> dict[str, Any]:
    """A pod such as the lease service makes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "gpulease-l1-1",
            "labels": {
                "app.kubernetes.io/name": "gpulease",
                "app.kubernetes.io/component": "lease",
                "gpulease/instance": "gpulease",
                "gpulease/lease": "l1",
            },
        },
        "spec": {
            "serviceAccountName": "gpulease-lease",
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "priorityClassName": PRIORITY,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "securityContext": {
                "runAsUser": 1000,
                "fsGroup": 100,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "companion",
                    "image": IMAGE,
                    "resources": {
                        "requests": {"cpu": "100m"},
                        "limits": {"nvidia.com/gpu": "1"},
                    },
                    "env": [
                        {"name": "GPULEASE_LEASE", "value": "l1"},
                        {
                            "name": "GPULEASE_POD_IP",
                            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                        },
                    ],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "privileged": False,
                        "runAsNonRoot": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "claim-stu"}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
                {
                    "name": "token",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"audience": "gpulease", "path": "token"}},
                            {
                                "downwardAPI": {
                                    "items": [
                                        {
                                            "path": "name",
                                            "fieldRef": {"fieldPath": "metadata.name"},
                                        }
                                    ]
                                }
                            },
                        ]
                    },
                },
            ],
        },
    }


def refusal(client: Any, pod: dict[str, Any], namespace: str) -> str:
    """Return why the API server does not take a pod (dry run), ``""`` when it does."""
    from testcluster.api import ApiError

    body = copy.deepcopy(pod)
    body["metadata"]["namespace"] = namespace
    try:
        client.create(body, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def with_volume(**source: Any) -> Change:
    return lambda pod: pod["spec"]["volumes"].append({"name": "more", **source})


def with_container(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def with_spec(**fields: Any) -> Change:
    return lambda pod: pod["spec"].update(fields)


def with_env(**entry: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["env"].append({"name": "X", **entry})


def with_init(**fields: Any) -> Change:
    return with_spec(initContainers=[{"name": "first", "image": IMAGE, **fields}])


def with_label(key: str, value: str | None) -> Change:
    def change(pod: dict[str, Any]) -> None:
        labels = pod["metadata"]["labels"]
        if value is None:
            del labels[key]
        else:
            labels[key] = value

    return change
