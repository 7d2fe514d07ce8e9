"""Leases admitted by a real Kueue: admission, waiting without end, preemption with a drain.

What is preempted takes long, and is shown at night.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testcluster import kueue
from testcluster.cluster import Cluster
from testcluster.pods import delete_namespace, gpu_pod, new_namespace, wait_for_phase
from testcluster.site import shipped
from testcluster.site.people import LONG, Student, at_work
from testcluster.site.ready import several_nodes
from testcluster.site.site import Site, running_site
from tests.helpers import wait_for_async

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(kueue.why_no_kueue()), reason=kueue.why_no_kueue() or "Kueue"),
]

JOBS = "kueue-jobs"
POLICY = """
pools:
  shared: {evidence: process}
classes:
  research:
    pool: shared
    max_count: 2
    pod: {kind: device_plugin, queue: {kueue: students}}
time_outs:
  {idle: 300s, idle_under_pressure: 300s, quiet: 300s, warning: 3s, warm_up: 1s, drain_max: 30s}
"""


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    """A site whose two GPUs Kueue gives to notebooks and to others' jobs."""
    directory = Path(tempfile.mkdtemp(prefix="kueue-", dir=cluster.layout.logs))
    new_namespace(cluster.api, JOBS)
    shipped.apply(cluster.api)
    shipped.apply(cluster.api, shipped.KUEUE)
    try:
        with kueue.running_kueue(cluster, directory, (JOBS, shipped.HUB_NAMESPACE)):
            local = {"students": shipped.HUB_NAMESPACE, "staff": JOBS}
            kueue.queue(cluster.api, "gpus", 2, local)
            kueue.priority(cluster.api, "urgent", 100)
            with running_site(cluster, directory, POLICY) as running:
                yield running
    finally:
        delete_namespace(cluster.api, JOBS)
        shipped.remove(cluster.api, shipped.KUEUE)


def job(name: str, **labels: str) -> dict[str, object]:
    made = gpu_pod(JOBS, name)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "staff", **labels}
    return made


async def seen_waiting(student: Student, words: str) -> dict[str, object]:
    def waits() -> bool:
        lease = student.watch.lease
        assert lease is not None
        assert lease["state"] in ("queued", "starting"), lease
        assert lease["reason"] == "cluster_queue", lease
        assert words in lease["sentence"], lease["sentence"]
        return True

    await wait_for_async(waits, LONG, f"a lease that waits in the cluster's queue: {words}")
    assert student.watch.lease is not None
    return student.watch.lease


async def test_who_is_not_let_in_waits_there_without_end(site: Site) -> None:
    api = site.cluster.api
    api.create(job("holder"))
    wait_for_phase(api, JOBS, "holder")
    async with at_work(site, "ada") as ada, at_work(site, "bob") as bob:
        # Kueue lets the first in.
        assert "at last" in (await ada.run("%%gpu\nfirst = 'at last'\nprint(first)")).text
        (pod,) = site.lease_pods()
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"

        # The second waits there, for longer than a pod may look for its place elsewhere.
        cell = asyncio.ensure_future(bob.run("%%gpu\nsecond = 1\nprint('second', second)"))
        await bob.watch.wait_for("starting", seconds=LONG)
        lease = await seen_waiting(bob, "share of the GPUs is in use")
        begun = asyncio.get_running_loop().time()
        await wait_for_async(lambda: asyncio.get_running_loop().time() > begun + 12, LONG)
        assert not cell.done()
        assert bob.watch.lease is not None
        assert (bob.watch.lease["id"], bob.watch.lease["reason"]) == (lease["id"], "cluster_queue")
        api.delete(f"/api/v1/namespaces/{JOBS}/pods/holder")
        assert "second 1" in (await cell).text


@pytest.mark.nightly
async def test_who_is_preempted_has_the_values_home_and_asks_anew(site: Site) -> None:
    api = site.cluster.api
    async with at_work(site, "eve") as eve, at_work(site, "finn") as finn:
        for each in (eve, finn):
            assert "'at last'" in (await each.run("%%gpu\nmade = 'at last'\nprint([made])")).text
        before = {each["metadata"]["uid"] for each in kueue.workloads(api, shipped.HUB_NAMESPACE)}
        api.create(job("urgent", **{"kueue.x-k8s.io/priority-class": "urgent"}))

        def lost() -> list[Student]:
            return [each for each in (eve, finn) if each.watch.state == "ended"]

        (loser,) = await wait_for_async(lost, LONG, "a lease to be preempted")
        assert loser.watch.lease is not None
        assert "queue gave the GPU to others" in loser.watch.lease["sentence"]
        assert (await loser.run("print(made)")).text.strip().endswith("at last")
        wait_for_phase(api, JOBS, "urgent")

        # The next cell asks anew, from the end of the queue.
        again = asyncio.ensure_future(loser.run("%%gpu\nprint('once more')"))
        await wait_for_async(lambda: loser.watch.state == "starting", LONG, "a new request")
        await seen_waiting(loser, "share of the GPUs is in use")
        after = {each["metadata"]["uid"] for each in kueue.workloads(api, shipped.HUB_NAMESPACE)}
        assert after - before
        api.delete(f"/api/v1/namespaces/{JOBS}/pods/urgent")
        assert "once more" in (await again).text


ON_TWO_NODES = "%%gpu --count 2 --nodes 2\nprint('both', 1)"


async def test_the_pods_of_several_nodes_are_admitted_together(site: Site) -> None:
    """With room for one of the two none is let in; what was returned leaves nothing behind."""
    api = site.cluster.api
    await several_nodes(site, LONG)
    try:
        api.create(job("first"))
        wait_for_phase(api, JOBS, "first")
        async with at_work(site, "cleo") as cleo:
            cell = asyncio.ensure_future(cleo.run(ON_TWO_NODES))
            await wait_for_async(lambda: len(site.lease_pods()) == 2, LONG, "two pods")
            await seen_waiting(cleo, "share of the GPUs is in use")
            assert all(each["spec"].get("schedulingGates") for each in site.lease_pods())
            (own,) = [
                each
                for each in kueue.workloads(api, shipped.HUB_NAMESPACE)
                if len(each["metadata"]["ownerReferences"]) == 2
            ]
            assert sum(each["count"] for each in own["spec"]["podSets"]) == 2
            api.delete(f"/api/v1/namespaces/{JOBS}/pods/first")
            assert "both 1" in (await cell).text
            await cleo.run("%gpu return")
            await wait_for_async(lambda: not site.lease_pods(), LONG, "its pods to be gone")
            await wait_for_async(
                lambda: not kueue.workloads(api, shipped.HUB_NAMESPACE), LONG, "its Workload"
            )
    finally:
        shipped.remove(api, shipped.SEVERAL_NODES)


@pytest.mark.nightly
async def test_a_pod_that_is_preempted_takes_the_others_of_its_lease_with_it(site: Site) -> None:
    api = site.cluster.api
    await several_nodes(site, LONG)
    try:
        async with at_work(site, "dora") as dora:
            assert "both 1" in (await dora.run(ON_TWO_NODES)).text
            api.create(job("urgent", **{"kueue.x-k8s.io/priority-class": "urgent"}))
            await dora.watch.wait_for("ended", seconds=LONG)
            assert dora.watch.lease is not None
            assert "queue gave the GPU to others" in dora.watch.lease["sentence"]
            await wait_for_async(lambda: not site.lease_pods(), LONG, "both pods to be gone")
            wait_for_phase(api, JOBS, "urgent")
            api.delete(f"/api/v1/namespaces/{JOBS}/pods/urgent")
            assert "both 1" in (await dora.run(ON_TWO_NODES)).text
    finally:
        shipped.remove(api, shipped.SEVERAL_NODES)
