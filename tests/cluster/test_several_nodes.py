"""A notebook's GPUs on several nodes, on a real site: pods that meet, and end as one lease."""

import asyncio
import contextlib
import copy
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpulease.protocol import labels
from gpulease.providers.kubernetes.manifests.pod_network import between
from testcluster.api import ApiError, Object
from testcluster.cluster import Cluster
from testcluster.images import GPULEASE_IMAGE
from testcluster.pods import gpu_pod, wait_for_phase
from testcluster.site import shipped
from testcluster.site.people import LONG, at_work
from testcluster.site.ready import several_nodes
from testcluster.site.site import Site, running_site
from tests.companion.test_launch import MEET
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

POLICY = f"""
pools: {{cards: {{evidence: cells}}}}
classes:
  card: {{pool: cards, max_count: 4, pod: {{image: "{GPULEASE_IMAGE}"}}}}
time_outs: {{idle: 300s, warning: 3s, warm_up: 1s, drain_max: 30s}}
"""
NETWORKS = f"/apis/networking.k8s.io/v1/namespaces/{shipped.HUB_NAMESPACE}/networkpolicies"
PODS = f"/api/v1/namespaces/{shipped.HUB_NAMESPACE}/pods"
ASK = "%%gpu --count 4 --nodes 2\n"
LAUNCH = """import subprocess, sys
done = subprocess.run(
    [sys.executable, "-P", "-m", "gpulease", "launch", *options, sys.executable, "-c", program],
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(done.stdout, "status", done.returncode)"""
#: Each says on which pod and with which cards it is, then they meet and add up their ranks.
TELL = "import os; print('at', os.environ['HOSTNAME'], os.environ['NVIDIA_VISIBLE_DEVICES'])\n"
WAIT = "import signal; print('waits', flush=True); signal.pause()"


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="nodes-", dir=cluster.layout.logs))
    with running_site(cluster, directory, POLICY) as running:
        yield running
    shipped.remove(cluster.api, shipped.SEVERAL_NODES)  # what a site has not asked for it lacks


@pytest.fixture
async def allowed(site: Site) -> None:
    """Several nodes are installed, and the service has noticed."""
    await several_nodes(site, LONG)


def ours(site: Site) -> list[Object]:
    """Return the network policies that leases brought."""
    return site.cluster.api.items(NETWORKS, labelSelector=labels.LEASE)


async def all_gone(site: Site) -> None:
    await wait_for_async(lambda: not site.lease_pods(), LONG, "its pods to be gone")
    await wait_for_async(lambda: not ours(site), LONG, "its network policy to be gone")


def running(program: str) -> int:
    """Return how many processes of this machine, pods' among them, end in these words."""
    found = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += process.cmdline()[-1:] == [program]
    return found


async def test_they_are_refused_until_they_are_installed(site: Site) -> None:
    async with at_work(site, "ada") as ada:
        done = await ada.kernel.execute(f"{ASK}1", seconds=LONG)
        assert done.status == "error"
        assert "severalNodes.enabled" in str(done.error) + done.text
        assert not site.lease_pods()


@pytest.mark.usefixtures("allowed")
async def test_what_is_launched_runs_in_all_pods_which_meet(site: Site) -> None:
    async with at_work(site, "ada") as ada:
        program = f"options, program = ['--per-gpu'], {TELL + MEET!r}"
        said = (await ada.run(f"{ASK}{program}\n{LAUNCH}")).text
        assert "status 0" in said
        for rank in range(4):
            assert re.search(rf"\[{rank}\] {rank} of 4 on \S+ total 6", said), said
        places = dict(re.findall(r"\[(\d)\] at (\S+) \S+", said))
        pods = {each["metadata"]["name"]: each for each in site.lease_pods()}
        assert set(places.values()) == set(pods)
        assert places["0"] == places["1"] != places["2"] == places["3"]
        cards = {c for found in re.findall(r"\[\d\] at \S+ (\S+)", said) for c in found.split(",")}
        assert len(cards) == 4, "each pod has its own"

        (network,) = ours(site)
        (owner,) = network["metadata"]["ownerReferences"]
        assert owner["uid"] == pods[places["0"]]["metadata"]["uid"]
        assert ada.watch.lease is not None
        marks = network["spec"]["podSelector"]["matchLabels"]
        assert marks[labels.LEASE] == ada.watch.lease["id"]
        await ada.run("%gpu return")
        await ada.watch.wait_for("ended", seconds=LONG)
        await all_gone(site)


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_pod_that_is_killed_ends_the_lease_which_says_why(site: Site, rank: int) -> None:
    async with at_work(site, f"bob{rank}") as bob:
        waits = f"{WAIT}  # {rank} {site.settings.directory}"
        program = f"options, program = [], {waits!r}"
        cell = asyncio.ensure_future(bob.kernel.execute(f"{ASK}{program}\n{LAUNCH}", seconds=LONG))
        await wait_for_async(lambda: running(waits) == 3, LONG, "the command and both processes")
        assert bob.watch.lease is not None
        name = labels.lease_pod_name(bob.watch.lease["id"], 1, rank)
        site.cluster.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        done = await cell
        assert done.status == "error"
        await bob.watch.wait_for("ended", seconds=LONG)
        assert bob.watch.lease["reason"] == "failed"
        # By what comes first: the pod's SIGTERM, the end of its connection, the service's word.
        words = ("its lease failed", "process on it failed", "is being stopped")
        assert any(each in done.text + done.error for each in words), (done.text, done.error)
        await all_gone(site)
        await wait_for_async(lambda: not running(waits), LONG, "all that ran in its pods to end")


@pytest.mark.usefixtures("allowed")
async def test_where_only_one_node_fits_there_is_no_pod_at_all(site: Site, namespace: str) -> None:
    api = site.cluster.api
    async with at_work(site, "cleo") as cleo:
        api.create(gpu_pod(namespace, "holder"))
        wait_for_phase(api, namespace, "holder")
        try:
            cell = asyncio.ensure_future(cleo.run(f"{ASK}print('got it')"))
            await cleo.watch.wait_for("queued", seconds=LONG)
            assert not site.lease_pods()
        finally:
            api.delete(f"/api/v1/namespaces/{namespace}/pods/holder")
        assert "got it" in (await cell).text
        assert len(site.lease_pods()) == 2


def changed(policy: Object, change: Callable[[Object], object]) -> Object:
    made = copy.deepcopy(policy)
    change(made)
    return made


@pytest.mark.usefixtures("allowed")
def test_the_service_may_make_no_other_network_policy(site: Site) -> None:
    service = site.cluster.api.as_account(shipped.OWN_NAMESPACE, "gpulease")
    marks = {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: labels.APP,
        labels.LEASE: "l1",
        labels.ATTEMPT: "1",
    }
    metadata = {"name": "bounds", "namespace": shipped.HUB_NAMESPACE, "labels": marks, "uid": "u"}
    right = between({"metadata": metadata})
    hub = {"podSelector": {"matchLabels": {"component": "hub"}}}
    everywhere: Object = {"namespaceSelector": {}}
    changes: list[Callable[[Object], object]] = [
        lambda made: made["spec"].update(podSelector={}),
        lambda made: made["spec"]["podSelector"]["matchLabels"].pop(labels.LEASE),
        lambda made: made["spec"]["podSelector"]["matchLabels"].update({labels.NAME: "jupyterhub"}),
        lambda made: made["spec"]["podSelector"].update(
            matchExpressions=[{"key": "a", "operator": "DoesNotExist"}]
        ),
        lambda made: made["spec"]["ingress"][0]["from"].append(hub),
        lambda made: made["spec"]["egress"][0]["to"][0].update(everywhere),
        lambda made: made["spec"]["egress"][0].pop("to"),
        lambda made: made["spec"]["ingress"].append({}),
        lambda made: made["spec"].update(egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]),
        lambda made: made["spec"].update(policyTypes=["Ingress"]),
        lambda made: made["metadata"].pop("ownerReferences"),
    ]
    for change in changes:
        wrong = changed(right, change)
        with pytest.raises(ApiError) as refused:
            service.create(wrong)
        assert refused.value.status in (403, 422), json.dumps(wrong)
        assert "gpulease-pod-networks" in refused.value.message, json.dumps(wrong)
    service.create(right)
    with pytest.raises(ApiError):
        service.delete(f"{NETWORKS}/bounds")
