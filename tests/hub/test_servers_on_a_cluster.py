"""GPULeaseSpawner on a real cluster: its objects as they really come to be, and a real hub."""

import asyncio
import base64
import json
import uuid

import psutil
import pytest
from traitlets.config import Config

from gpulease.demo.browse import Browser
from gpulease.errors import GPULeaseError
from gpulease.protocol import labels
from tests.helpers import wait_for, wait_for_async
from tests.hub.conftest import Groups
from tests.hub.running import PASSWORD, HubPlace, running_hub

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GPU = {"nvidia.com/gpu": "1"}
PATIENT = 120


def pods_of(api, namespace):
    return [
        each
        for each in api.items(f"/api/v1/namespaces/{namespace}/pods")
        if "deletionTimestamp" not in each["metadata"]
    ]


def connections():
    """This process's connections to the API server that are still open."""
    every = psutil.Process().net_connections("tcp")
    return [each for each in every if each.raddr and each.raddr.port == 6443]


@pytest.fixture
async def make_real_spawner(cluster, namespace, monkeypatch):
    """Make spawners that talk to the cluster; everything they started ends with the test."""
    kube_config = pytest.importorskip("kubernetes_asyncio.config.kube_config")
    from jupyterhub import orm
    from kubespawner import KubeSpawner, clients

    from gpulease.hub import GPULeaseSpawner

    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.layout.kubeconfig))
    clients.load_config.cache_clear()
    made = []

    def make(name="", user="stu", **settings):
        from testcluster.images import GPULEASE_IMAGE

        spawner = GPULeaseSpawner(
            _mock=True,
            config=Config(),
            user=Groups(user),
            orm_spawner=orm.Spawner(name=name),
            **{
                "namespace": namespace,
                "image": GPULEASE_IMAGE,
                "image_pull_policy": "Never",
                "cmd": ["sleep", "3600"],
                "storage_pvc_ensure": False,
                "delete_grace_period": 1,
                "extra_pod_config": {"dnsPolicy": "Default"},
                "start_timeout": PATIENT,
                **settings,
            },
        )
        made.append(spawner)
        return spawner

    yield make
    for spawner in made:
        await spawner.stop(now=True)
    await KubeSpawner._stop_all_reflectors()
    for client in {id(each.api.api_client): each.api.api_client for each in made}.values():
        await client.close()
    clients.load_config.cache_clear()
    await wait_for_async(lambda: not connections(), seconds=30, what="connections are closed")


async def start(spawner, **user_options):
    spawner.user_options = user_options
    spawner.clear_state()
    await spawner.apply_group_overrides()
    return await asyncio.wait_for(spawner.start(), PATIENT)


async def test_a_server_and_a_named_one_run_without_a_gpu(cluster, namespace, make_real_spawner):
    sidecar = {"name": "side", "image": "local.test/pause:1", "imagePullPolicy": "Never"}
    one = make_real_spawner(extra_containers=[sidecar])
    two = make_real_spawner(name="lab-2")
    await start(one)
    await start(two)
    assert await one.poll() is None
    seen = {
        each["metadata"]["annotations"][labels.SERVER]: each
        for each in pods_of(cluster.api, namespace)
    }
    assert set(seen) == {"", "lab-2"}
    for pod in seen.values():
        assert pod["status"]["phase"] == "Running"
        assert pod["metadata"]["annotations"][labels.USER] == "stu"
        assert pod["metadata"]["labels"][labels.INSTANCE] == "gpulease"
        for container in pod["spec"]["containers"]:
            env = {each["name"]: each.get("value", "") for each in container["env"]}
            assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    await one.stop(now=True)
    assert await one.poll() is not None


async def test_a_gpu_is_refused_before_anything_is_created_and_the_next_spawn_is_clean(
    cluster, namespace, make_real_spawner
):
    spawner = make_real_spawner(
        profile_list=[
            {"display_name": "CPU", "slug": "cpu"},
            {
                "display_name": "GPU",
                "slug": "gpu",
                "kubespawner_override": {"extra_resource_limits": GPU},
            },
        ]
    )
    with pytest.raises(Exception, match=r"nvidia\.com/gpu"):
        await start(spawner, profile="gpu")
    assert pods_of(cluster.api, namespace) == []
    await start(spawner, profile="cpu")
    (pod,) = pods_of(cluster.api, namespace)
    assert "nvidia.com/gpu" not in str(pod["spec"])


async def test_a_stripped_server_runs(cluster, namespace, make_real_spawner):
    spawner = make_real_spawner(
        gpulease_guard="strip",
        extra_resource_limits=GPU,
        tolerations=[{"operator": "Exists"}],
        node_selector={"nvidia.com/gpu.present": "true"},
        extra_pod_config={
            "dnsPolicy": "Default",
            "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
        },
        extra_container_config={"volumeMounts": [{"name": "dev", "mountPath": "/host"}]},
    )
    await start(spawner)
    (pod,) = pods_of(cluster.api, namespace)
    assert pod["status"]["phase"] == "Running"
    notebook = pod["spec"]["containers"][0]
    assert "nvidia.com/gpu" not in str(notebook["resources"])
    assert not [each for each in pod["spec"].get("volumes", []) if "hostPath" in each]
    assert "nodeSelector" not in pod["spec"]


async def test_each_user_has_a_namespace(cluster, make_real_spawner):
    user = f"u{uuid.uuid4().hex[:6]}"
    spawner = make_real_spawner(
        user=user,
        enable_user_namespaces=True,
        user_namespace_template="hub-{username}",
        user_namespace_labels={labels.INSTANCE: "gpulease-test"},
    )
    path = f"/api/v1/namespaces/hub-{user}"
    try:
        await start(spawner)
        (pod,) = pods_of(cluster.api, f"hub-{user}")
        assert pod["metadata"]["annotations"][labels.USER] == user
        found = cluster.api.get(path)["metadata"]["labels"]
        assert found[labels.INSTANCE] == "gpulease-test"
    finally:
        await spawner.stop(now=True)
        if cluster.api.find(path):
            cluster.api.delete(path)


MARKS = {labels.NAME: labels.APP, labels.COMPONENT: labels.LEASE_COMPONENT}


def what_leases_need(namespace, *ports):
    """Objects that the hub copies, and one that is none of ours."""
    own = {"name": "gpulease-lease", "namespace": namespace, "labels": MARKS}
    rights = "rbac.authorization.k8s.io"
    network = {
        "podSelector": {"matchLabels": MARKS},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}],
    }
    return [
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": own,
         "spec": network},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own,
         "automountServiceAccountToken": False},
        {"apiVersion": f"{rights}/v1", "kind": "RoleBinding", "metadata": own,
         "roleRef": {"apiGroup": rights, "kind": "ClusterRole", "name": "view"},
         "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": namespace}]},
        {"apiVersion": "v1", "kind": "ServiceAccount",
         "metadata": {"name": "the-hubs-own", "namespace": namespace}},
    ]  # fmt: skip


async def test_what_leases_need_is_copied_and_a_server_starts_without_it(
    cluster, namespace, make_real_spawner, caplog
):
    from testcluster.api import path_of

    user = f"u{uuid.uuid4().hex[:6]}"
    spawner = make_real_spawner(
        user=user,
        enable_user_namespaces=True,
        user_namespace_template="hub-{username}",
        gpulease_namespace=namespace,
    )
    own = f"hub-{user}"
    path = f"/api/v1/namespaces/{own}"

    def copy(document):
        return cluster.api.find(path_of(document).replace(namespace, own))

    try:
        # Nothing is there to copy: the server runs, and the log says what is amiss.
        await start(spawner)
        assert pods_of(cluster.api, own)[0]["status"]["phase"] == "Running"
        assert cluster.api.get(path)["metadata"]["labels"][labels.INSTANCE] == "gpulease"
        assert f"No GPU lease can start in namespace {own}" in caplog.text
        assert "has no NetworkPolicy" in caplog.text
        await spawner.stop(now=True)
        caplog.clear()

        *ours, other = what_leases_need(namespace, 8890)
        for document in (*ours, other):
            cluster.api.create(document)
        await start(spawner)
        assert "No GPU lease" not in caplog.text
        assert all(copy(document) for document in ours)
        assert copy(other) is None
        assert copy(ours[1])["automountServiceAccountToken"] is False
        assert copy(ours[2])["subjects"] == ours[2]["subjects"]
        await spawner.stop(now=True)

        # What bounds lease pods follows its source.
        changed = what_leases_need(namespace, 8890, 8891)[0]
        cluster.api.patch(path_of(changed), {"spec": changed["spec"]})
        await start(spawner)
        ports = copy(changed)["spec"]["ingress"][0]["ports"]
        assert [each["port"] for each in ports] == [8890, 8891]
    finally:
        await spawner.stop(now=True)
        if cluster.api.find(path):
            cluster.api.delete(path)


async def test_internal_ssl_gives_the_pod_its_secret_and_service(
    cluster, namespace, make_real_spawner, tmp_path
):
    paths = {}
    for name in ("keyfile", "certfile", "cafile"):
        paths[name] = str(tmp_path / name)
        (tmp_path / name).write_text(f"the {name}")
    spawner = make_real_spawner(
        internal_ssl=True, internal_trust_bundles={"hub-ca": paths["cafile"]}
    )
    spawner.cert_paths = paths
    await start(spawner)
    (pod,) = pods_of(cluster.api, namespace)
    secret = cluster.api.get(f"/api/v1/namespaces/{namespace}/secrets/{spawner.secret_name}")
    assert base64.b64decode(secret["data"]["ssl.key"]) == b"the keyfile"
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    service = cluster.api.get(f"/api/v1/namespaces/{namespace}/services/{spawner.pod_name}")
    # KubeSpawner selects by the labels it gives; ours beside them must not be in the way.
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()

    # Nothing of it travels to a lease pod beside this server: not volume, not mount, not a path.
    assert spawner.secret_name in json.dumps(pod["spec"])
    made = lease_pod_beside(pod)
    spec = json.dumps(made["spec"])
    for each in (spawner.secret_name, spawner.secret_mount_path, "JUPYTERHUB_SSL", "ssl.key"):
        assert each not in spec


def lease_pod_beside(pod):
    """The lease pod that would be made beside this server's pod, by the service's own functions."""
    from gpulease.policy.model import GPUClass
    from gpulease.providers.kubernetes.manifests.manifest import (
        PodSettings,
        lease_pod,
        notebook_container,
    )
    from gpulease.providers.kubernetes.pod_resources.volumes import Situation, decide
    from tests.policy.build import NOW, starting

    home = "/home/jovyan"
    nothing = Situation(
        claims={}, volumes={}, server=None, candidates=(), granted="", home=home, mirror_because=""
    )
    files = decide(pod, notebook_container(pod), nothing)
    settings = PodSettings(service_url="http://x.y:1/", instance="gpulease")
    return lease_pod(starting(1), GPUClass("t4", "cards"), pod, files, settings, now=NOW)


# A whole hub.

CONFIG = """
from gpulease.hub import setup_gpulease

c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.namespace = "{namespace}"
c.KubeSpawner.image = "{image}"
c.KubeSpawner.image_pull_policy = "Never"
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.storage_pvc_ensure = False
c.KubeSpawner.delete_grace_period = 1
c.KubeSpawner.start_timeout = 120
c.KubeSpawner.extra_pod_config = {{"dnsPolicy": "Default"}}
c.KubeSpawner.http_timeout = 120
c.KubeSpawner.uid = 1000
c.KubeSpawner.fs_gid = 100
c.KubeSpawner.profile_list = [
    {{"display_name": "CPU", "slug": "cpu", "default": True}},
    {{
        "display_name": "With a GPU",
        "slug": "gpu",
        "kubespawner_override": {{"extra_resource_limits": {{"nvidia.com/gpu": "1"}}}},
    }},
]
setup_gpulease(c, service_url="http://127.0.0.1:9", service_token="for this test only" * 2)
"""


@pytest.fixture
def hub(cluster, namespace, tmp_path):
    from testcluster.images import GPULEASE_IMAGE

    place = HubPlace(tmp_path, host="198.18.0.1")
    rest = CONFIG.format(namespace=namespace, image=GPULEASE_IMAGE)
    env = {"KUBECONFIG": str(cluster.layout.kubeconfig)}
    with running_hub(place, rest, env=env, seconds=PATIENT):
        yield place.url, place.log


async def test_a_real_hub_starts_a_real_server_and_refuses_one_with_a_gpu(hub, cluster, namespace):
    url, log = hub
    async with Browser(url) as browser:
        await browser.log_in("stu", PASSWORD)
        with pytest.raises(GPULeaseError, match="Your server was not started") as refused:
            await browser.hub_api("POST", "users/stu/server", {"profile": "gpu"})
        assert refused.value.status == 400
        assert pods_of(cluster.api, namespace) == []
        assert "Refused the pod of stu: spec.containers[0].resources.limits" in log.read_text()

        # The hub keeps the spawner of a spawn that failed: the same object starts the next.  It
        # calls a server ready that answers over the pod network.
        await browser.hub_api("POST", "users/stu/server", {"profile": "cpu"})
        await browser.spawn(seconds=PATIENT)
        (pod,) = pods_of(cluster.api, namespace)
        assert "nvidia.com/gpu" not in str(pod["spec"]["containers"][0]["resources"])
        assert pod["metadata"]["annotations"][labels.USER] == "stu"
        await browser.stop_server(seconds=PATIENT)
    wait_for(lambda: not pods_of(cluster.api, namespace), seconds=PATIENT, what="the pod ends")
