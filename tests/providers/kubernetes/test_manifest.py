import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.model import GPUClass, TimeOuts
from gpulease.policy.pods import AskKind, ClusterQueue, PodAsk, QueueEngine, Sharing
from gpulease.protocol import labels
from gpulease.providers.kubernetes.manifests.manifest import QUEUE_MAX, deadline, grace, lease_pod
from gpulease.providers.kubernetes.observed.pods import record_of
from gpulease.providers.kubernetes.pod_resources.volumes import decide
from tests.providers.kubernetes.server_pods import (
    GPU_A,
    HOME,
    NOW,
    SETTINGS,
    lease,
    notebook,
    server,
    situation,
)

CLASS = GPUClass("gpu", "cards", price=2.5, time_outs=TimeOuts(hard_length=3600, drain_max=30))


def made(gpu_class=CLASS, pod=None, seen=None, settings=SETTINGS, rank=0, **changed):
    pod = pod or server()
    files = decide(pod, notebook(pod), seen or situation("ReadWriteMany"))
    return lease_pod(lease(**changed), gpu_class, pod, files, settings, now=NOW, rank=rank)


def companion(manifest):
    (container,) = manifest["spec"]["containers"]
    return container


def environment(manifest):
    return {each["name"]: each.get("value") for each in companion(manifest)["env"]}


def test_it_is_named_by_lease_and_attempt_and_lives_and_dies_with_its_server():
    meta = made()["metadata"]
    assert meta["name"] == "gpulease-5f2a9c0d1e2f3a4b-2"
    assert meta["namespace"] == "hub"
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "jupyter-jane",
            "uid": "b1f1f9a2",
            "controller": False,
            "blockOwnerDeletion": False,
        }
    ]


def test_the_same_input_gives_the_same_manifest():
    assert made() == made()
    assert json.loads(json.dumps(made())) == made()


def test_it_describes_itself():
    meta = made(kernel_id="k-1")["metadata"]
    assert meta["labels"] == {
        "app.kubernetes.io/name": "gpulease",
        "app.kubernetes.io/component": "lease",
        "app.kubernetes.io/managed-by": "gpulease",
        "gpulease/instance": labels.label_value("hub a"),
        "gpulease/lease": "5f2a9c0d1e2f3a4b",
        "gpulease/attempt": "2",
        "gpulease/class": "gpu",
        "gpulease/pool": "cards",
    }
    ends = NOW + timedelta(seconds=SETTINGS.start_max + 3600)
    assert meta["annotations"] == {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
        "gpulease/lease": "5f2a9c0d1e2f3a4b",
        "gpulease/instance": "hub a",
        "gpulease/user": "jane@x.org",
        "gpulease/server": "",
        "gpulease/server-uid": "b1f1f9a2",
        "gpulease/project": "course: ml",
        "gpulease/gpu-class": "gpu",
        "gpulease/count": "1",
        "gpulease/price": "2.5",
        "gpulease/ticket": "2026-03-02T13:59:00+00:00#7",
        "gpulease/created": "2026-03-02T13:59:00+00:00",
        "gpulease/granted": "2026-03-02T14:00:00+00:00",
        "gpulease/ends": ends.isoformat(),
        "gpulease/kernel": "k-1",
        "gpulease/slots": "gpu-1/nvidia.com/gpu/0",
        "gpulease/files": "mount",
        "gpulease/files-why": "Claim claim-jane may be mounted on many nodes.",
    }


def test_it_has_no_right_and_no_credential_but_the_token_for_the_service():
    manifest = made()
    spec = manifest["spec"]
    assert spec["serviceAccountName"] == "gpulease-lease"
    assert spec["automountServiceAccountToken"] is False
    tokens = [v["projected"]["sources"] for v in spec["volumes"] if "projected" in v]
    assert tokens == [
        [
            {
                "serviceAccountToken": {
                    "audience": "gpulease",
                    "expirationSeconds": 3600,
                    "path": "token",
                }
            }
        ]
    ]
    text = json.dumps(manifest)
    for secret in ("the-servers-token", "hf-of-jane", "secretKeyRef", "jane-cloud"):
        assert secret not in text
    assert environment(manifest)["GPULEASE_TOKEN_FILE"] == "/var/run/secrets/gpulease/token"
    assert {m["mountPath"]: m.get("readOnly") for m in companion(manifest)["volumeMounts"]} == {
        HOME: None,
        "/var/run/secrets/gpulease": True,
        "/dev/shm": None,
    }


def test_the_environment_is_the_students_and_ours():
    assert environment(made()) == {
        "COURSE": "ml-1",
        "EMPTY": "",
        "HOME": HOME,
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "GPULEASE_POD_IP": None,
        "GPULEASE_LEASE": "5f2a9c0d1e2f3a4b",
        "GPULEASE_ATTEMPT": "2",
        "GPULEASE_USER": "jane@x.org",
        "GPULEASE_SERVER": "",
        "GPULEASE_SERVICE_URL": "https://hub.test/services/gpulease",
        "GPULEASE_TOKEN_FILE": "/var/run/secrets/gpulease/token",
        "GPULEASE_PORTS": "8890-8990",
        "GPULEASE_HARD_END": "2026-03-02T15:10:00+00:00",
        "GPULEASE_GRACE": "50",
        "GPULEASE_DRAIN_MAX": "30",
        "GPULEASE_MIRROR": "",
        "GPULEASE_MIRROR_LIMIT": "2147483648",
        "GPULEASE_PARK": "",
    }
    (address,) = [e for e in companion(made())["env"] if e["name"] == "GPULEASE_POD_IP"]
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert companion(made())["command"] == ["python", "-m", "gpulease.companion", "--pod"]


def test_it_runs_as_the_server_does_but_without_privilege():
    spec = made()["spec"]
    assert spec["securityContext"] == {
        "fsGroup": 100,
        "fsGroupChangePolicy": "OnRootMismatch",
        "supplementalGroups": [2000],
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert companion(made())["securityContext"] == {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }
    for host in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        assert host not in spec


def test_what_loosens_a_server_does_not_loosen_its_lease():
    own = {"type": "spc_t", "user": "system_u", "level": "s0:c1,c2"}
    loose = {"seccompProfile": {"type": "Unconfined"}, "seLinuxOptions": own}
    pod = server(securityContext=loose)
    notebook(pod)["securityContext"] = loose
    spec = made(pod=pod)["spec"]
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"level": "s0:c1,c2"},
    }
    (container,) = spec["containers"]
    assert container["securityContext"]["seLinuxOptions"] == {"level": "s0:c1,c2"}
    assert "seccompProfile" not in container["securityContext"]


def test_a_sites_own_profile_and_type_are_its_leases():
    own = {
        "seccompProfile": {"type": "Localhost", "localhostProfile": "course.json"},
        "seLinuxOptions": {"type": "container_t"},
    }
    assert made(pod=server(securityContext=own))["spec"]["securityContext"] == own
    bare = {"seLinuxOptions": {"type": "spc_t"}}
    assert "seLinuxOptions" not in made(pod=server(securityContext=bare))["spec"]["securityContext"]


def test_image_and_computing_follow_the_server_unless_the_class_says():
    container = companion(made())
    assert (container["image"], container["imagePullPolicy"]) == ("hub.test/singleuser:5", "Always")
    assert container["resources"] == {
        "limits": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
    }
    ask = PodAsk(image="a.test/cuda:1", limits=(("memory", "32Gi"),), runtime_class="nvidia")
    other = made(replace(CLASS, pod=ask))
    container = companion(other)
    assert container["image"] == "a.test/cuda:1"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"]["limits"] == {"memory": "32Gi", "nvidia.com/gpu": "1"}
    assert other["spec"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in made()["spec"]
    site = replace(SETTINGS, image="a.test/site:1", priority_class="leases", runtime_class="rt")
    spec = made(settings=site)["spec"]
    assert companion({"spec": spec})["image"] == "a.test/site:1"
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("leases", "rt")


def test_a_mirrored_home_is_an_empty_directory_at_its_place():
    manifest = made(seen=situation("ReadWriteOnce"))
    assert environment(manifest)["GPULEASE_MIRROR"] == HOME
    (mirror,) = [v for v in manifest["spec"]["volumes"] if v["name"] == "gpulease-mirror"]
    assert mirror["emptyDir"] == {"sizeLimit": str(4 * 2**30)}
    assert {"name": "gpulease-mirror", "mountPath": HOME} in companion(manifest)["volumeMounts"]
    assert not [v for v in manifest["spec"]["volumes"] if "persistentVolumeClaim" in v]


def required(manifest):
    affinity = manifest["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def test_it_keeps_off_another_installations_nodes_and_prefers_the_granted_one():
    manifest = made()
    assert [term["matchExpressions"][-1] for term in required(manifest)] == [
        {"key": "gpulease/instance", "operator": "In", "values": [labels.label_value("hub a")]},
        {"key": "gpulease/instance", "operator": "DoesNotExist"},
    ]
    affinity = manifest["spec"]["affinity"]["nodeAffinity"]
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [
        (each["weight"], each["preference"]["matchFields"][0]["values"]) for each in preferred
    ] == [(10, ["gpu-1"]), (5, ["cpu-1"])], "the granted node first, then the server's own"


def test_it_lands_where_its_volume_is():
    manifest = made(seen=situation("ReadWriteOnce", place=GPU_A))
    for term in required(manifest):
        assert term["matchFields"] == [
            {"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}
        ]


@pytest.mark.parametrize(
    ("ask", "ours"),
    [
        (PodAsk(), True),
        (PodAsk(AskKind.SHARED, sharing=Sharing.TIME_SLICING), True),
        (PodAsk(AskKind.SHARED, sharing=Sharing.MPS), False),
        (PodAsk(AskKind.SHARED), False),
    ],
)
def test_shared_memory_is_left_to_the_device_plugin_where_that_may_be_mps(ask, ours):
    manifest = made(replace(CLASS, pod=ask))
    paths = [mount["mountPath"] for mount in companion(manifest)["volumeMounts"]]
    assert ("/dev/shm" in paths) is ours
    names = {volume["name"] for volume in manifest["spec"]["volumes"]}
    assert names == {mount["name"] for mount in companion(manifest)["volumeMounts"]}


MPS = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}


def test_under_mps_each_process_keeps_to_the_share_of_its_class():
    ask = PodAsk(AskKind.SHARED, sharing=Sharing.MPS, compute_percent=25, several_shares=True)
    share = replace(CLASS, pod=ask, memory=8 * 2**30)
    sites = replace(SETTINGS, environment=(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),))
    found = environment(made(share, settings=sites))
    assert {name: found[name] for name in MPS} == {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    assert not MPS & environment(made(share, count=2)).keys()
    for other in (replace(ask, sharing=Sharing.TIME_SLICING), PodAsk()):
        assert not MPS & environment(made(replace(share, pod=other))).keys()
    assert not MPS & environment(made(replace(CLASS, pod=replace(ask, compute_percent=0)))).keys()


exact = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)


@given(exact, exact, exact, st.integers(1, 4), st.integers(1, 99), st.integers(0, 99))
def test_a_store_that_does_not_know_the_lease_can_read_it_back(
    user, server_name, project, count, attempt, number
):
    own = lease(
        user=user,
        server=server_name,
        project=project,
        count=count,
        attempt=attempt,
        ticket=(NOW, number),
        kernel_id="k",
    )
    pod = server()
    files = decide(pod, notebook(pod), situation("ReadWriteMany"))
    found = record_of(lease_pod(own, CLASS, pod, files, SETTINGS, now=NOW))
    assert found is not None
    for name in ("id", "user", "server", "project", "gpu_class", "count", "attempt", "ticket",
                 "created", "kernel_id", "devices"):  # fmt: skip
        assert getattr(found, name) == getattr(own, name)
    assert found.active_since == NOW


def test_the_pods_of_several_nodes_are_told_apart_and_each_tells_the_whole_lease():
    held = {"count": 4, "nodes": 2, "devices": ("a/gpu/0", "a/gpu/1", "b/gpu/0", "b/gpu/1")}
    pods = [made(rank=rank, **held) for rank in range(2)]
    assert [each["metadata"]["name"] for each in pods] == [
        "gpulease-5f2a9c0d1e2f3a4b-2",
        "gpulease-5f2a9c0d1e2f3a4b-2-1",
    ]
    assert [each["metadata"]["labels"][labels.RANK] for each in pods] == ["0", "1"]
    assert [each["spec"]["affinity"]["nodeAffinity"] for each in pods] == [
        made(devices=(device,))["spec"]["affinity"]["nodeAffinity"]
        for device in ("a/gpu/0", "b/gpu/0")
    ]
    for pod in pods:
        assert companion(pod)["resources"]["limits"]["nvidia.com/gpu"] == "2"
        found = record_of(pod)
        assert (found.id, found.count, found.nodes, found.devices) == (
            lease().id, 4, 2, held["devices"],
        )  # fmt: skip
    assert labels.RANK not in made()["metadata"]["labels"]
    assert labels.NODES not in made()["metadata"]["annotations"]


def test_the_pods_of_several_nodes_name_the_same_group_of_kueues():
    queued = replace(CLASS, pod=PodAsk(queue=ClusterQueue(QueueEngine.KUEUE, "students")))
    pods = [made(queued, rank=rank, count=2, nodes=2, devices=()) for rank in range(2)]
    group = "kueue.x-k8s.io/pod-group-name"
    assert {each["metadata"]["labels"][group] for each in pods} == {pods[0]["metadata"]["name"]}
    assert group not in made(queued, devices=())["metadata"]["labels"]


def test_a_claim_comes_with_its_template_and_hides_what_is_not_claimed():
    manifest = made(replace(CLASS, pod=PodAsk(AskKind.DRA)), count=2)
    (claim,) = manifest["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"].startswith("gpulease-gpu-2-")
    assert companion(manifest)["resources"]["claims"] == [{"name": "gpu"}]
    assert environment(manifest)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(made())


def test_the_deadline_is_never_before_an_end_that_policy_could_grant():
    outs = CLASS.time_outs
    longest = SETTINGS.start_max + outs.hard_length + outs.drain_max + outs.interrupt_grace
    assert made()["spec"]["activeDeadlineSeconds"] == deadline(outs, SETTINGS) > longest
    assert made()["spec"]["terminationGracePeriodSeconds"] == grace(outs) == 50
    assert made(wanted=60.0)["spec"]["activeDeadlineSeconds"] == deadline(outs, SETTINGS)


def test_the_classs_annotations_never_replace_ours():
    ask = PodAsk(extra_annotations=(("site/a", "b"), ("karpenter.sh/do-not-disrupt", "false")))
    said = made(replace(CLASS, pod=ask))["metadata"]["annotations"]
    assert said["site/a"] == "b"
    assert said["karpenter.sh/do-not-disrupt"] == "true"


def test_a_pod_for_a_queue_of_the_clusters_says_so_and_waits_there_without_losing_its_time():
    line = ClusterQueue(QueueEngine.KUEUE, "students")
    ask = PodAsk(queue=line, extra_labels=(("site/a", "b"), ("gpulease/lease", "mine")))
    plain, queued = made(), made(replace(CLASS, pod=ask))
    marks = queued["metadata"]["labels"]
    assert marks == plain["metadata"]["labels"] | {
        "kueue.x-k8s.io/queue-name": "students",
        "site/a": "b",
    }
    ends = [
        datetime.fromisoformat(each["metadata"]["annotations"][labels.ENDS])
        for each in (plain, queued)
    ]
    assert (ends[1] - ends[0]).total_seconds() == QUEUE_MAX
    for key in ("activeDeadlineSeconds", "terminationGracePeriodSeconds"):
        assert queued["spec"][key] == plain["spec"][key]


def test_a_pod_without_containers_is_no_server():
    with pytest.raises(GPULeaseError, match="no container"):
        lease_pod(
            lease(),
            CLASS,
            {**server(), "spec": {"containers": []}},
            decide(server(), {}, situation()),
            SETTINGS,
            now=NOW,
        )


names = st.sampled_from(
    ["JUPYTERHUB_API_TOKEN", "jpy_cookie", "AWS_SECRET_ACCESS_KEY", "MY_API_KEY", "DB_PASSWORD",
     "OAUTH2_TOKEN", "GPULEASE_SERVICE_URL", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]
)  # fmt: skip


@given(st.dictionaries(names, st.just("secret-value")))
def test_what_may_be_a_credential_or_a_device_never_crosses(variables):
    pod = server()
    notebook(pod)["env"] = [{"name": k, "value": v} for k, v in variables.items()]
    assert "secret-value" not in json.dumps(made(pod=pod))
