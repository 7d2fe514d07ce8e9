"""Rights, quota, admission policies, tokens and the audit log are the real ones."""

import uuid

import pytest

from testcluster.api import Api, ApiError, Object
from testcluster.cluster import Cluster
from testcluster.pods import pod, wait_for_phase
from tests.helpers import wait_for

pytestmark = pytest.mark.cluster

RBAC = "rbac.authorization.k8s.io/v1"


def _account_that_lists_pods(api: Api, namespace: str) -> Api:
    metadata = {"name": "reader", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    api.create({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules})
    api.create(
        {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        }
    )
    return api.as_account(namespace, "reader")


def test_account_may_do_what_its_role_says_and_nothing_else(
    cluster: Cluster, namespace: str
) -> None:
    reader = _account_that_lists_pods(cluster.api, namespace)
    path = f"/api/v1/namespaces/{namespace}/pods"
    wait_for(lambda: _allowed(reader, path), 120, "the role to be known")
    with pytest.raises(ApiError) as refused:
        reader.create(pod(namespace, "never"))
    assert refused.value.status == 403
    with pytest.raises(ApiError) as refused:
        reader.items("/api/v1/pods")
    assert refused.value.status == 403
    mine = f"system:serviceaccount:{namespace}:reader"
    decisions = {
        (each["verb"], each["annotations"]["authorization.k8s.io/decision"])
        for each in cluster.audited()
        if each["user"]["username"] == mine
    }
    assert {("list", "allow"), ("create", "forbid")} <= decisions


def _allowed(reader: Api, path: str) -> bool:
    try:
        reader.items(path)
    except ApiError as error:
        if error.status == 403:
            return False
        raise
    return True


def test_quota_refuses_one_gpu_too_many(cluster: Cluster, namespace: str) -> None:
    api = cluster.api
    api.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": namespace},
            "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
        }
    )
    quota = f"/api/v1/namespaces/{namespace}/resourcequotas/gpus"
    wait_for(lambda: "hard" in api.get(quota).get("status", {}), 120, "the quota to be counted")
    api.create(pod(namespace, "first", limits={"nvidia.com/gpu": "1"}))
    with pytest.raises(ApiError, match="exceeded quota: gpus") as refused:
        api.create(pod(namespace, "second", limits={"nvidia.com/gpu": "1"}))
    assert refused.value.status == 403


def test_admission_policy_refuses_what_it_names(cluster: Cluster, namespace: str) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    policy, binding = _policy(name, namespace)
    cluster.api.create(policy)
    cluster.api.create(binding)
    try:
        refused = wait_for(lambda: _refusal(cluster.api, namespace), 120, "the policy to be known")
    finally:
        group = "/apis/admissionregistration.k8s.io/v1"
        cluster.api.delete(f"{group}/validatingadmissionpolicies/{name}")
        cluster.api.delete(f"{group}/validatingadmissionpolicybindings/{name}")
    assert "no GPU here" in refused


def _policy(name: str, namespace: str) -> tuple[Object, Object]:
    version = "admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    expression = (
        "!object.spec.containers.exists(c, has(c.resources.limits)"
        " && 'nvidia.com/gpu' in c.resources.limits)"
    )
    policy = {
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
            "validations": [{"expression": expression, "message": "no GPU here"}],
        },
    }
    binding = {
        "apiVersion": version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def _refusal(api: Api, namespace: str) -> str:
    try:
        api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            pod(namespace, "gpu", limits={"nvidia.com/gpu": "1"}),
            dryRun="All",
        )
    except ApiError as error:
        return error.message
    return ""


def test_token_of_a_pod_names_its_pod(cluster: Cluster, namespace: str) -> None:
    """A projected token with our audience is reviewed to the very pod, and to no other audience."""
    bearer = pod(namespace, "bearer", "sh", "-c", "cat /token/it; echo; exec sleep 3600")
    projected = {"serviceAccountToken": {"audience": "gpulease", "path": "it"}}
    bearer["spec"]["volumes"] = [{"name": "token", "projected": {"sources": [projected]}}]
    mount = {"name": "token", "mountPath": "/token"}
    bearer["spec"]["containers"][0]["volumeMounts"] = [mount]
    cluster.api.create(bearer)
    uid = wait_for_phase(cluster.api, namespace, "bearer")["metadata"]["uid"]
    token = wait_for(lambda: cluster.api.logs(namespace, "bearer").strip(), 120, "the token")
    status = _review(cluster.api, token, "gpulease")
    assert status["authenticated"]
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [uid]
    assert not _review(cluster.api, token, "another").get("authenticated")


def _review(api: Api, token: str, audience: str) -> Object:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "metadata": {},
        "spec": {"token": token, "audiences": [audience]},
    }
    status: Object = api.create(body)["status"]
    return status
