"""The admission policies on a real API server: each rule refuses one request, allows another."""

import contextlib
import copy
import json
from typing import Any

import pytest

from gpulease.hub import guard, guard_list
from tests.helm_values.conftest import Installed
from tests.helm_values.lease_pods import (
    IMAGE,
    PRIORITY,
    Change,
    lease_pod,
    refusal,
    with_container,
    with_env,
    with_init,
    with_label,
    with_spec,
    with_volume,
)
from tests.helpers import wait_for
from tests.hub.pods import (
    ALLOW,
    BAD,
    UNLISTED,
    blocker,
    changed,
    clean_pod,
    expression,
    required_fields,
)
from tests.hub.usual_sites import SITES

pytestmark = pytest.mark.cluster


def make_runtime_class(api: Any, name: str) -> None:
    """Make a runtime class unless it is there: the API server takes no pod of an unknown one."""
    from testcluster.api import ApiError

    metadata = {"name": name}
    document = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata}
    with contextlib.suppress(ApiError):
        api.request(
            "POST", "/apis/node.k8s.io/v1/runtimeclasses", {**document, "handler": "nvidia"}
        )


def make_priority_class(api: Any, name: str, preemption: str) -> None:
    """Make a priority class unless it is there."""
    from testcluster.api import ApiError

    with contextlib.suppress(ApiError):
        api.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": 0,
                "preemptionPolicy": preemption,
            }
        )


@pytest.fixture(scope="module")
def policies(installed: Installed) -> Installed:
    """The policies are in force: the API server takes some seconds to know them and the rights."""
    for name in ("nvidia", "nvidia-cdi", "gpulease-test-other"):
        make_runtime_class(installed.api, name)
    make_priority_class(installed.api, PRIORITY, "Never")
    make_priority_class(installed.api, "gpulease-test-pushing", "PreemptLowerPriority")
    make_priority_class(installed.api, "spring-default-priority", "PreemptLowerPriority")
    bad = clean_pod()
    bad["spec"]["runtimeClassName"] = "nvidia"
    service = installed.service

    make_hub_account(installed)

    def in_force() -> bool:
        foreign = lease_pod()
        del foreign["metadata"]["labels"]
        return (
            "runtime_class: " in refusal(installed.api, bad, installed.servers)
            and "labels: " in refusal(service, foreign, installed.servers)
            and not refusal(service, lease_pod(), installed.servers)
        )

    wait_for(in_force, 120, "the admission policies are in force")
    return installed


def make_hub_account(installed: Installed) -> None:
    """Let the hub's account create pods where servers run, as the chart does."""
    rights = "rbac.authorization.k8s.io"
    metadata = {"name": "hub", "namespace": installed.servers}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    subject = {"kind": "ServiceAccount", **metadata}
    role = {"apiGroup": rights, "kind": "Role", "name": "hub"}
    for document in (
        {"kind": "Role", "rules": [rule]},
        {"kind": "RoleBinding", "roleRef": role, "subjects": [subject]},
    ):
        installed.api.create({"apiVersion": f"{rights}/v1", "metadata": metadata, **document})
    for name in ("other", "user-sa"):
        metadata = {"name": name, "namespace": installed.servers}
        installed.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def hub_of(policies: Installed) -> Any:
    """Return a client that is the hub."""
    from testcluster.api import Api

    account = f"system:serviceaccount:{policies.servers}:hub"
    return Api(policies.api.kubeconfig, as_user=account)


def test_the_api_server_finds_no_fault_in_the_expressions(policies):
    """It checks the types of every expression against the pod's own schema."""

    def checked() -> list[dict[str, Any]]:
        found = policies.api.items(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        )
        mine = [each for each in found if each["metadata"]["name"].endswith(policies.system)]
        return mine if all("typeChecking" in each.get("status", {}) for each in mine) else []

    mine = wait_for(checked, 120, "the policies are checked")
    assert len(mine) == 2
    assert [each["status"]["typeChecking"] for each in mine] == [{}, {}]


# The service's own pods.

_CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
}
_SECRET = {"secretKeyRef": {"name": "hub", "key": "hub.services.gpulease.apiToken"}}

LEASE_RULES: list[tuple[str, Change]] = [
    ("labels", with_label("app.kubernetes.io/name", None)),
    ("labels", with_label("app.kubernetes.io/component", "singleuser-server")),
    ("labels", with_label("gpulease/instance", None)),
    ("account", with_spec(serviceAccountName="default")),
    ("account", with_spec(automountServiceAccountToken=True)),
    ("host", with_spec(hostNetwork=True)),
    ("host", with_spec(hostPID=True)),
    ("host", with_spec(hostIPC=True)),
    ("host", with_container(ports=[{"containerPort": 80, "hostPort": 80}])),
    ("privilege", with_container(securityContext={"privileged": True})),
    ("privilege", with_container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})),
    ("privilege", with_container(securityContext={"allowPrivilegeEscalation": True})),
    ("privilege", with_init(securityContext={"privileged": True})),
    ("node", with_spec(nodeName="node1")),
    ("priority", with_spec(priorityClassName="system-node-critical")),
    ("priority", with_spec(priorityClassName="gpulease-test-pushing")),
    ("priority", with_spec(priorityClassName="")),
    (
        "privilege",
        lambda pod: (
            with_spec(hostUsers=False)(pod),
            with_container(securityContext={"procMount": "Unmasked"})(pod),
        ),
    ),
    ("host", with_init(ports=[{"containerPort": 80, "hostPort": 80}])),
    ("secrets", with_volume(secret={"secretName": "hub", "optional": True})),
    ("volumes", with_volume(azureFile={"secretName": "hub", "shareName": "x"})),
    ("volumes", with_volume(hostPath={"path": "/srv"})),
    ("volumes", with_volume(configMap={"name": "hub"})),
    ("volumes", with_volume(csi={"driver": "secrets-store.csi.k8s.io"})),
    ("volumes", with_volume(cephfs={"monitors": ["m"], "secretRef": {"name": "hub"}})),
    ("claims", with_volume(persistentVolumeClaim={"claimName": "hub-db-dir"})),
    ("claims", with_volume(persistentVolumeClaim={"claimName": "hub-db-dir-claim-x"})),
    ("secrets", with_volume(secret={"secretName": "hub"})),
    ("tokens", with_volume(projected={"sources": [{"secret": {"name": "hub"}}]})),
    ("tokens", with_volume(projected={"sources": [{"configMap": {"name": "hub"}}]})),
    ("tokens", with_volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]})),
    (
        "tokens",
        with_volume(
            projected={"sources": [{"serviceAccountToken": {"audience": "vault", "path": "t"}}]}
        ),
    ),
    ("environment", with_env(valueFrom=_SECRET)),
    ("environment", with_env(valueFrom={"configMapKeyRef": {"name": "hub", "key": "x"}})),
    ("environment", with_container(envFrom=[{"secretRef": {"name": "hub"}}])),
    ("environment", with_container(envFrom=[{"configMapRef": {"name": "hub"}}])),
    ("environment", with_init(env=[{"name": "X", "valueFrom": _SECRET}])),
    ("pull secrets", with_spec(imagePullSecrets=[{"name": "hub"}])),
    ("images", with_container(image="docker.io/library/miner:latest")),
    ("images", with_init(image="docker.io/library/miner:latest")),
    ("users", with_spec(securityContext={"runAsUser": 0})),
    ("users", with_container(securityContext={**_CONFINED, "runAsUser": 0})),
    ("root", with_container(securityContext={**_CONFINED, "runAsNonRoot": False})),
    (
        "root",
        with_container(securityContext={k: v for k, v in _CONFINED.items() if "Root" not in k}),
    ),
    ("confined", with_container(securityContext={"allowPrivilegeEscalation": False})),
    (
        "confined",
        with_container(securityContext={**_CONFINED, "capabilities": {"drop": ["CHOWN"]}}),
    ),
    ("confined", with_init()),
    (
        "confined",
        with_container(securityContext={**_CONFINED, "seccompProfile": {"type": "Unconfined"}}),
    ),
    ("confined", with_spec(securityContext={"seccompProfile": {"type": "Unconfined"}})),
    ("runtimes", with_spec(runtimeClassName="gpulease-test-other")),
    ("file servers", with_volume(nfs={"server": "files.example.org", "path": "/data"})),
    ("file servers", with_volume(cephfs={"monitors": ["10.0.0.1:6789"]})),
    ("file servers", with_volume(glusterfs={"endpoints": "gluster", "path": "homes"})),
    ("images", with_container(image="evil.example/quay.io/jupyter/x:1")),
]


@pytest.mark.parametrize(("rule", "change"), LEASE_RULES)
def test_the_service_may_create_lease_pods_and_nothing_more(policies, rule, change):
    pod = lease_pod()
    assert refusal(policies.service, pod, policies.servers) == ""
    change(pod)
    message = refusal(policies.service, pod, policies.servers)
    assert f"denied request: {rule}: " in message


def test_the_service_cannot_mount_the_hubs_secret_though_it_may_create_pods(policies):
    """With a Secret that is really there, and without dry run."""
    from testcluster.api import ApiError

    metadata = {"name": "hub", "namespace": policies.servers}
    policies.api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"x": "y"}}
    )
    pod = lease_pod()
    pod["metadata"] |= {"namespace": policies.servers, "name": "thief"}
    with_volume(secret={"secretName": "hub"})(pod)
    with pytest.raises(ApiError, match="secrets: lease pods may not mount this Secret"):
        policies.service.create(pod)
    with pytest.raises(ApiError) as refused:
        policies.service.get(f"/api/v1/namespaces/{policies.servers}/secrets/hub")
    assert refused.value.status == 403


@contextlib.contextmanager
def site_setting(policies: Installed, policy: str, name: str, pattern: str) -> Any:
    """Set one of the variables that a site sets, for a block."""
    path = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
        f"{policy}-{policies.system}"
    )
    before = policies.api.get(path)["spec"]["variables"]
    changed = copy.deepcopy(before)
    (variable,) = [each for each in changed if each["name"] == name]
    variable["expression"] = f"r'^(?:{pattern})$'"
    policies.api.patch(path, {"spec": {"variables": changed}})
    try:
        yield
    finally:
        policies.api.patch(path, {"spec": {"variables": before}})


@pytest.mark.parametrize(
    ("name", "pattern", "change"),
    [
        ("secrets", "registry", with_spec(imagePullSecrets=[{"name": "registry"}])),
        ("secrets", "registry", with_volume(secret={"secretName": "registry"})),
        ("claims", "claim-.*|course", with_volume(persistentVolumeClaim={"claimName": "course"})),
        ("images", "own.example/.*", with_container(image="own.example/x:1")),
        ("users", "0|1000", lambda pod: pod["spec"]["securityContext"].update(runAsUser=0)),
        ("runtimes", "gpulease-test-.*", with_spec(runtimeClassName="gpulease-test-other")),
        (
            "fileServers",
            r"files\.example\.org",
            with_volume(nfs={"server": "files.example.org", "path": "/data"}),
        ),
    ],
)
def test_what_a_site_names_is_allowed(policies, name, pattern, change):
    pod = lease_pod()
    change(pod)
    assert refusal(policies.service, pod, policies.servers)
    with site_setting(policies, "gpulease-lease-pods", name, pattern):
        wait_for(
            lambda: not refusal(policies.service, pod, policies.servers), 120, "the name counts"
        )
    wait_for(lambda: refusal(policies.service, pod, policies.servers), 120, "the rule is back")


# Everybody else's pods.

#: The API server itself does not take these, whatever a policy says.
_IMPOSSIBLE = {
    "spec.extension.requests[0].adminAccess",  # no field of a pod
    "spec.ephemeralContainers[0].resources.limits.nvidia.com/gpu",  # never at creation
    "spec.containers[2].resources.limits.NVIDIA.COM/GPU",  # no such name
    "metadata.annotations.NVIDIA.com/use-gpuuuid",
    # Windows' switch is refused beside what Linux has.
    "spec.securityContext.windowsOptions.hostProcess",
    "spec.overhead.nvidia.com/gpu",  # only by a runtime class that says the same
}


def _possible(change: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with this change in the full form that the API server asks for."""
    pod = changed(change)
    spec = pod["spec"]
    if spec.get("runtimeClassName") == "gvisor":
        del spec["runtimeClassName"]  # there is no such class in this cluster
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        container.setdefault("image", IMAGE)
        for name in container.get("resources", {}).get("requests", {}):
            if "/" in name:  # an extended resource's request needs its limit
                container["resources"].setdefault("limits", {})[name] = "1"
        for claim in container.get("resources", {}).get("claims", []):
            spec.setdefault("resourceClaims", []).append({"name": claim["name"]})
    for claim in spec.get("resourceClaims", []):
        claim["resourceClaimName"] = "mine"
    mounted = {"name": "devices"}
    if any(
        mount["name"] == "devices"
        for each in spec.get("initContainers", [])
        for mount in each.get("volumeMounts", [])
    ):
        spec["volumes"].append({**mounted, "emptyDir": {}})
    return pod


def _ids(case: Any) -> str:
    return case[2][-60:] if isinstance(case, tuple) else ""


CASES = [
    case
    for case in BAD
    if case[2] not in _IMPOSSIBLE
    and not case[2].startswith("spec.resources")  # a pod's own resources: CPU and memory only
    and "/../" not in str(case[1].get("spec", {}).get("volumes"))
]


def _some_by_day(cases: list[Any], most: int = 4) -> list[Any]:
    """Leave all but a few of each rule to the night: the names are the guard's, tested there."""
    seen: dict[str, int] = {}
    found = []
    for case in cases:
        seen[case[0]] = seen.get(case[0], 0) + 1
        marks = [pytest.mark.nightly] if seen[case[0]] > most else []
        found.append(pytest.param(*case, marks=marks, id=_ids(case)))
    return found


@pytest.mark.parametrize(("rule", "change", "path"), _some_by_day(CASES))
def test_nobody_else_gets_a_gpu(policies, rule, change, path):
    """The policy refuses what the guard refuses, by the same name."""
    expected = "sharing_note" if rule == "admin_access" else rule
    message = refusal(policies.api, _possible(change), policies.servers)
    assert f"denied request: {expected}: " in message


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec": {"nodeSelector": {"nvidia.com/gpu.present": "false"}}},
        {"spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}},
        {"metadata": {"annotations": {"example.com/gpu-notes": "none"}}},
    ],
)
def test_a_server_without_a_gpu_is_created(policies, change):
    pod = changed(change)
    del pod["spec"]["runtimeClassName"]  # there is no such class in this cluster
    assert refusal(policies.api, pod, policies.servers) == ""


# Pods of the hub's account: what is on the list and nothing else.

#: What the API server judges before any policy: classes that are not there, and no such volume.
_ELSEWHERE = {"volumeDevice", "runtimeClassName", "priorityClassName"}
LISTED = [
    case
    for case in UNLISTED
    if case[0].split(" ")[0] not in _ELSEWHERE and "hugepages-" not in case[0]  # sizes only
]
#: The line of allowed things that doctor prints for the clean pod, and for all these cases.
SITE = guard_list.expression(ALLOW)[4:-2]


def _servers_own(change: dict[str, Any]) -> dict[str, Any]:
    """Return a possible pod without what the clean pod's site would have to allow."""
    pod = _possible(change)
    pod["spec"]["volumes"] = [each for each in pod["spec"]["volumes"] if each["name"] != "data"]
    return pod


@pytest.mark.parametrize(("line", "change", "path"), LISTED, ids=[case[0] for case in LISTED])
def test_the_hub_creates_what_is_listed_and_nothing_else(policies, line, change, path):
    """The policy refuses what the guard does not find on the list, by its line; others may."""
    pod = _servers_own(change)
    message = refusal(hub_of(policies), pod, policies.servers)
    assert f"denied request: not_listed: {line}" in message
    # A line stands there once for each place: for limits and for requests, say.
    allow = message.partition("servers.allow of gpulease's chart: ")[2].rpartition(".")[0]
    assert set(json.loads(allow)) == {line}
    assert refusal(policies.api, pod, policies.servers) == ""


@pytest.mark.parametrize(("rule", "change", "path"), CASES[::9], ids=[_ids(c) for c in CASES[::9]])
def test_the_hub_gets_no_gpu_either(policies, rule, change, path):
    assert "denied request: " in refusal(hub_of(policies), _servers_own(change), policies.servers)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec": {"initContainers": [blocker()]}},
        {"spec": {"nodeSelector": {"nvidia.com/gpu.present": "false"}}},
        {"spec": {"serviceAccountName": "default", "automountServiceAccountToken": True}},
    ],
)
def test_the_hub_creates_a_server(policies, change):
    assert refusal(hub_of(policies), _servers_own(change), policies.servers) == ""


@pytest.mark.parametrize("site", SITES)
def test_the_hub_creates_servers_of_usual_sites(policies, site):
    assert refusal(hub_of(policies), _servers_own(SITES[site]), policies.servers) == ""


def test_the_charts_privileged_container_is_allowed_as_the_chart_makes_it(policies):
    for client in (hub_of(policies), policies.api):
        pod = _servers_own({"spec": {"initContainers": [blocker()]}})
        assert refusal(client, pod, policies.servers) == ""
        for change in ({"command": ["sh"]}, {"image": "own.example/x:1"}, {"args": ["x"]}):
            pod = _servers_own({"spec": {"initContainers": [blocker(**change)]}})
            assert "privileged: " in refusal(client, pod, policies.servers)


def test_a_site_allows_more_by_the_same_lines(policies):
    hub, pod = hub_of(policies), changed({})
    del pod["spec"]["runtimeClassName"]
    assert "not_listed: " in refusal(hub, pod, policies.servers)
    with site_setting(policies, "gpulease-no-gpu", "allow", SITE):
        wait_for(lambda: not refusal(hub, pod, policies.servers), 120, "the lines count")
    wait_for(lambda: refusal(hub, pod, policies.servers), 120, "the rule is back")


def test_another_namespace_is_not_covered(policies, cluster):
    pod = clean_pod()
    del pod["spec"]["runtimeClassName"]
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    assert refusal(policies.api, pod, "default") == ""


@pytest.mark.parametrize(
    ("setting", "value"), [("exempt", "privileged|scheduler"), ("others", "system:.*|.*admin")]
)
def test_a_site_exempts_rules_and_users(policies, setting, value):
    pod = changed({"spec": {"schedulerName": "kai-scheduler"}})
    del pod["spec"]["runtimeClassName"]
    assert "scheduler: " in refusal(policies.api, pod, policies.servers)
    with site_setting(policies, "gpulease-no-gpu", setting, value):
        wait_for(lambda: not refusal(policies.api, pod, policies.servers), 120, "the exemption")
    wait_for(lambda: refusal(policies.api, pod, policies.servers), 120, "the rule is back")


# What is already there.


@pytest.fixture
def running(policies):
    """A server's pod and a lease pod that exist (they need not run)."""
    server = clean_pod()
    del server["spec"]["runtimeClassName"]
    server["metadata"]["namespace"] = policies.servers
    lease = lease_pod()
    lease["metadata"] |= {"namespace": policies.servers, "name": "gpulease-running-1"}
    policies.api.create(server)
    policies.service.create(lease)
    path = f"/api/v1/namespaces/{policies.servers}/pods"
    yield f"{path}/jupyter-stu", f"{path}/gpulease-running-1"
    now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for name in ("jupyter-stu", "gpulease-running-1"):
        policies.api.delete(f"{path}/{name}", now)


def _ephemeral(**fields: Any) -> dict[str, Any]:
    container = {"name": "debug", "image": IMAGE, "terminationMessagePolicy": "File", **fields}
    return {"spec": {"ephemeralContainers": [container]}}


def test_a_debug_container_brings_no_device_into_a_server(policies, running):
    from testcluster.api import ApiError

    server, lease = running
    asks = _ephemeral(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    with pytest.raises(ApiError, match="visible_devices: "):
        policies.api.patch(f"{server}/ephemeralcontainers", asks, "strategic-merge")
    with pytest.raises(ApiError, match="privileged: "):
        policies.api.patch(
            f"{server}/ephemeralcontainers",
            _ephemeral(securityContext={"privileged": True}),
            "strategic-merge",
        )
    policies.api.patch(f"{server}/ephemeralcontainers", _ephemeral(), "strategic-merge")
    # Into a lease pod nobody gets one at all: not even the service.
    with pytest.raises(ApiError, match="denied request: "):
        policies.api.patch(f"{lease}/ephemeralcontainers", _ephemeral(), "strategic-merge")


def test_nobody_resizes_a_lease_pod_and_a_server_may_be_resized(policies, running):
    from testcluster.api import ApiError

    server, lease = running

    def resize(name: str, memory: str) -> dict[str, Any]:
        resources = {"requests": {"cpu": memory}}
        return {"spec": {"containers": [{"name": name, "resources": resources}]}}

    policies.api.patch(f"{server}/resize", resize("notebook", "200m"), "strategic-merge")
    with pytest.raises(ApiError, match="device_resource: "):
        policies.api.patch(f"{lease}/resize", resize("companion", "200m"), "strategic-merge")


def test_a_lease_pod_can_be_noted_by_the_clusters_own_parts(policies, running):
    _server, lease = running
    policies.api.patch(lease, {"metadata": {"annotations": {"cluster/own": "note"}}})


def test_a_servers_pod_does_not_become_a_lease_pod_by_a_label(policies, running):
    """Else its tolerations and notes could be changed past the rules."""
    from testcluster.api import ApiError

    server, lease = running
    for labels in (
        {"app.kubernetes.io/name": "gpulease", "app.kubernetes.io/component": "lease"},
        {"gpulease/lease": "l1"},
        {"gpulease/attempt": "1"},
    ):
        with pytest.raises(ApiError, match="lease_label: "):
            policies.api.patch(server, {"metadata": {"labels": labels}})
    policies.api.patch(lease, {"metadata": {"labels": {"site/own": "yes"}}})
    policies.api.patch(server, {"metadata": {"labels": {"site/own": "yes"}}})


def test_what_was_allowed_once_can_be_tidied_up_and_not_widened(policies):
    """A pod with a GPU that a named user made: controllers take off its finalizers later."""
    from testcluster.api import ApiError

    pod = changed({"metadata": {"annotations": {"hami.io/gpu-scheduler-policy": "spread"}}})
    del pod["spec"]["runtimeClassName"]
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    pod["metadata"] |= {"name": "theirs", "namespace": policies.servers}
    pod["metadata"]["finalizers"] = ["example.org/counted"]
    path = f"/api/v1/namespaces/{policies.servers}/pods/theirs"

    def created() -> bool:
        if refusal(policies.api, pod, policies.servers):
            return False
        policies.api.create(pod)
        return True

    with site_setting(policies, "gpulease-no-gpu", "others", "system:.*|.*admin"):
        wait_for(created, 120, "the user is named")
    another = {**pod, "metadata": {**pod["metadata"], "name": "another"}}
    wait_for(lambda: refusal(policies.api, another, policies.servers), 120, "the rule is back")
    try:
        policies.api.patch(path, {"metadata": {"annotations": {"site/own": "note"}}})
        tolerations = [*pod["spec"]["tolerations"], {"key": "gpulease/pool", "operator": "Exists"}]
        with pytest.raises(ApiError, match="denied request: "):
            policies.api.patch(path, {"spec": {"tolerations": tolerations}})
        with pytest.raises(ApiError, match="sharing_note: "):
            policies.api.patch(path, {"metadata": {"annotations": {"cdi.k8s.io/x": "all"}}})
        more = {"hami.io/gpu-scheduler-policy": "binpack"}
        with pytest.raises(ApiError, match="sharing_note: "):
            policies.api.patch(path, {"metadata": {"annotations": more}})
    finally:
        policies.api.patch(path, {"metadata": {"finalizers": None}})
        now = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        policies.api.delete(path, now)


def test_images_are_pulled_to_nodes_with_gpus_ahead_of_leases(policies):
    """A DaemonSet's pods name their node, which nobody else's may."""
    from testcluster.api import Api

    pod = changed(required_fields([expression("metadata.name", "In", "gpu-1")]))
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ].pop(0)
    del pod["spec"]["runtimeClassName"]
    assert "node_placement: " in refusal(policies.api, pod, policies.servers)
    controller = "system:serviceaccount:kube-system:daemon-set-controller"
    as_controller = Api(policies.api.kubeconfig, as_user=controller)
    assert refusal(as_controller, pod, policies.servers) == ""


def test_a_field_in_another_spelling_is_no_field(policies):
    """What the guard does not read the API server does not keep: no way round in either."""
    pod = clean_pod()
    del pod["spec"]["runtimeClassName"]
    pod["spec"] |= {"runtime_class_name": "nvidia", "RuntimeClassName": "nvidia"}
    pod["spec"]["containers"][0] |= {
        "Resources": {"limits": {"nvidia.com/gpu": "1"}},
        "security_context": {"privileged": True},
    }
    pod["metadata"] |= {"name": "spelled", "namespace": policies.servers}
    rules = guard.Rules(allow=ALLOW)
    assert guard.inspect(pod, rules) == ()
    kept = policies.api.create(pod, dryRun="All")
    assert guard.inspect(kept, rules) == ()
    assert "runtimeClassName" not in kept["spec"]
    assert kept["spec"]["containers"][0]["securityContext"]["privileged"] is False
