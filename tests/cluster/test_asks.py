"""The expected asks against a real API server, and those that a real kubelet can bind."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpulease.gpus.agent.pod_resources import PodResources
from gpulease.policy.model import GPUClass
from gpulease.policy.pods import AskKind
from gpulease.protocol import labels
from gpulease.providers.kubernetes.manifests.manifest import SERVICE_ACCOUNT, PodSettings, lease_pod
from gpulease.providers.kubernetes.pod_resources.ask import ask_of
from gpulease.providers.kubernetes.pod_resources.claims import claim_template
from gpulease.providers.kubernetes.pod_resources.volumes import KnownNode, Situation, decide
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.devices import card
from testcluster.dra_driver import DRIVER, GROUP, POOL, Driver, driver
from testcluster.images import GPULEASE_IMAGE
from testcluster.layout import NODE
from testcluster.pods import pod, wait_for_phase, wait_until_gone
from tests.helpers import wait_for
from tests.providers.kubernetes.expected import Expected, class_of, expected_asks
from tests.providers.kubernetes.server_pods import lease

pytestmark = pytest.mark.cluster

EXPECTED = {each.name: each for each in expected_asks()}
CLAIMS = {n: e for n, e in EXPECTED.items() if ask_of(e.gpu_class).kind is AskKind.DRA}
SETTINGS = PodSettings("https://198.18.0.1:9", "asks", image=GPULEASE_IMAGE)
# The first process of a container heeds no signal that it has no handler for.
SLEEP = ["python", "-c", "import signal; signal.signal(15, lambda *_: exit()); signal.pause()"]


@pytest.fixture
def server(cluster: Cluster, namespace: str) -> Object:
    """A notebook server's pod, and the account of lease pods beside it."""
    account = {"name": SERVICE_ACCOUNT, "namespace": namespace}
    cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    return cluster.api.create(pod(namespace, "jupyter-jane"))


@pytest.fixture(scope="module")
def dra(cluster: Cluster) -> Iterator[Driver]:
    with driver(cluster) as running:
        yield running


def asked(server: Object, gpu_class: GPUClass, count: int, number: int = 1) -> Object:
    """Return the lease pod for a class, as the provider would create it."""
    container = server["spec"]["containers"][0]
    seen = Situation({}, {}, None, [KnownNode(NODE)], "/home/jovyan")
    record = lease(id=f"asks{number}", count=count, attempt=1, devices=(), gpu_class="gpu")
    files = decide(server, container, seen)
    return lease_pod(record, gpu_class, server, files, SETTINGS, now=datetime.now(UTC))


def template(cluster: Cluster, namespace: str, expected: Expected, **query: str) -> Object:
    gpu_class = expected.gpu_class
    body = claim_template(
        gpu_class.name,
        ask_of(gpu_class),
        expected.count,
        namespace=namespace,
        instance=SETTINGS.instance,
    )
    path = f"{GROUP}/namespaces/{namespace}/resourceclaimtemplates"
    return cluster.api.request("POST", path, body, **query)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_api_server_takes_each_ask_as_it_is(
    cluster: Cluster, namespace: str, server: Object, name: str
) -> None:
    expected = EXPECTED[name]
    if name in CLAIMS:
        # Its conditions are compiled here: a wrong one is refused.
        taken = template(cluster, namespace, expected, dryRun="All")
        assert taken["spec"]["spec"]["devices"] == expected.words["claim"]["devices"]
    sent = asked(server, expected.gpu_class, expected.count)
    path = f"/api/v1/namespaces/{namespace}/pods"
    taken = cluster.api.request("POST", path, sent, dryRun="All", fieldValidation="Strict")
    assert _part_of(sent["spec"], taken["spec"])
    assert taken["metadata"]["annotations"] == sent["metadata"]["annotations"]


def _part_of(part: object, whole: object) -> bool:
    """Whether a server's object is the one that was sent, but for what it filled in."""
    if isinstance(part, dict) and isinstance(whole, dict):
        # What is empty, or false by default, the server leaves out.
        return all(_part_of(value, whole.get(key, type(value)())) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(_part_of, part, whole))
    return part == whole


def bind(cluster: Cluster, server: Object, gpu_class: GPUClass, count: int, number: int) -> Object:
    """Create the lease pod with a companion that only waits, and return it once it runs."""
    body = asked(server, gpu_class, count, number)
    container = body["spec"]["containers"][0]
    container |= {"command": SLEEP, "imagePullPolicy": "Never"}
    # An image says who it runs as; the stand-in for one does not.
    container["securityContext"]["runAsUser"] = 1000
    cluster.api.create(body)
    return wait_for_phase(cluster.api, body["metadata"]["namespace"], body["metadata"]["name"])


def test_a_whole_card_is_bound(cluster: Cluster, server: Object) -> None:
    running = bind(cluster, server, class_of({"kind": "device_plugin"}), 1, 1)
    assert running["spec"]["nodeName"] == NODE
    allocated = cluster.layout.allocations.read_text(encoding="utf-8").splitlines()
    assert any("nvidia.com/gpu" in line for line in allocated)
    cards = {card(number) for number in range(4)}
    assert any(each in allocated[-1] for each in cards)


def test_two_shares_are_bound_where_the_class_allows_it(cluster: Cluster, server: Object) -> None:
    pod_ = {"kind": "shared", "resource": "nvidia.com/gpu.shared", "several_shares": True}
    running = bind(cluster, server, class_of(pod_, 2), 2, 2)
    limits = running["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu.shared"] == "2"
    last = cluster.layout.allocations.read_text(encoding="utf-8").splitlines()[-1]
    assert last.count("::") == 2


def test_a_slice_is_bound(cluster: Cluster, server: Object) -> None:
    bind(cluster, server, class_of({"kind": "mig", "profile": "3g.20gb"}), 1, 3)
    last = cluster.layout.allocations.read_text(encoding="utf-8").splitlines()[-1]
    assert "mig-3g.20gb" in last


def test_the_pod_goes_with_its_server(cluster: Cluster, server: Object) -> None:
    running = bind(cluster, server, class_of({"kind": "shared"}), 1, 4)
    meta = server["metadata"]
    cluster.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")
    wait_until_gone(
        cluster.api,
        f"/api/v1/namespaces/{meta['namespace']}/pods/{running['metadata']['name']}",
    )


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("A card by claim", [{"gpu-0"}, {"gpu-1"}]),
        ("Several cards by claim, on one PCIe root", [{"gpu-0", "gpu-1"}]),
        ("A MIG slice by claim", [{"mig-3-0"}]),
    ],
)
def test_a_claim_is_bound_and_prepared_and_given_back(
    cluster: Cluster,
    namespace: str,
    server: Object,
    dra: Driver,
    name: str,
    devices: list[set[str]],
) -> None:
    expected = CLAIMS[name]
    made = template(cluster, namespace, expected)
    assert made["metadata"]["labels"][labels.COMPONENT] == labels.CLAIM_COMPONENT
    running = bind(cluster, server, expected.gpu_class, expected.count, 5)
    (status,) = running["status"]["resourceClaimStatuses"]
    path = f"{GROUP}/namespaces/{namespace}/resourceclaims/{status['resourceClaimName']}"
    claim = cluster.api.get(path)
    assert claim["status"]["reservedFor"][0]["name"] == running["metadata"]["name"]
    assert set(dra.prepared[claim["metadata"]["uid"]]) in devices
    meta = running["metadata"]
    assert held_by(cluster, meta["name"]) == {
        (DRIVER, POOL, each) for each in dra.prepared[claim["metadata"]["uid"]]
    }
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{meta['name']}")
    wait_until_gone(cluster.api, path)
    wait_for(lambda: claim["metadata"]["uid"] not in dra.prepared, 120, "the claim given back")


def held_by(cluster: Cluster, name: str) -> set[tuple[str, str, str]]:
    """Return the claimed devices that the kubelet says a pod holds, as node agents read them."""
    kubelet = PodResources(cluster.layout.pod_resources_socket)
    try:
        kubelet.refresh(time.monotonic())
        held = kubelet.holders(time.monotonic(), {})
    finally:
        kubelet.close()
    assert held is not None, kubelet.problem
    return {(each.driver, each.pool, each.device) for each in held if each.pod == name}


def test_a_claim_that_no_device_meets_waits(
    cluster: Cluster, namespace: str, server: Object, dra: Driver
) -> None:
    gpu_class = class_of({"kind": "dra", "where": {"memory_min": "100GiB"}})
    expected = replace(CLAIMS["A card by claim"], gpu_class=gpu_class)
    template(cluster, namespace, expected)
    body = asked(server, gpu_class, 1, 6)
    cluster.api.create(body)

    def why() -> str:
        seen = cluster.api.pod(namespace, body["metadata"]["name"])
        conditions = seen["status"].get("conditions") or []
        return next((c.get("message", "") for c in conditions if c["status"] == "False"), "")

    wait_for(lambda: "cannot allocate all claims" in why(), 120, "the scheduler's word")
