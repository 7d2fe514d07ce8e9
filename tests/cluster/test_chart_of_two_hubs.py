"""A whole round of two releases of the chart, each with its hub, on the GPUs of one service.

The commands of the documentation make the second one's namespace, rights, token and settings.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpulease import labels
from testcluster import rights
from testcluster.cluster import Cluster
from testcluster.pods import delete_namespace
from testcluster.site import shipped
from testcluster.site.chart import ChartSite, charted_site, further_hub
from testcluster.site.people import LONG, Student, at_work
from tests.cluster.test_chart import CELLS, label_node
from tests.helm_values.shipped import page
from tests.helpers import wait_for_async
from tests.hub import chart

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.nightly,  # test_several_hubs.py shows it each time, without the chart
    pytest.mark.timeout(600),
    chart.needs_chart,
    pytest.mark.skipif(chart.kubectl() is None, reason="kubectl is not built (make setup-cluster)"),
]

LAB = "lab2"
#: The second hub has the first one's ports, at an address of its own.
ADDRESS = "198.18.0.2"
COMMANDS = page("Several hubs")
POLICY = f"{CELLS}projects:\n  {LAB}: {{group: {LAB}/, pools: {{cards: {{limit: 1}}}}}}\n"


@dataclass(frozen=True)
class Campus:
    """Both hubs; the service is the first one's."""

    first: ChartSite
    second: ChartSite


def commands(start: str, until: str) -> str:
    """Return the page's commands from one to before another, by how they begin."""
    found = [number for number, each in enumerate(COMMANDS) if each.startswith((start, until))]
    return "\n".join(COMMANDS[found[0] : found[-1]])


@pytest.fixture
def campus(cluster: Cluster) -> Iterator[Campus]:
    directory = Path(tempfile.mkdtemp(prefix="hubs-", dir=cluster.layout.logs))
    places = [directory / name for name in ("checkout", "first", "second")]
    for each in places:
        each.mkdir()
    checkout, one, other = places
    shutil.copytree(shipped.SHIPPED, checkout / "helm-values")
    programs = directory / "programs"
    programs.mkdir()
    (programs / "kubectl").symlink_to(str(chart.kubectl()))
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.layout.kubeconfig),
    }

    def run(script: str) -> None:
        words = ["sh", "-ec", script]
        done = subprocess.run(
            words, cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}:\n{done.stdout}{done.stderr}"

    told = next(each for each in COMMANDS if each.startswith("sed -i '/KubernetesSettings"))
    shipped.apply(cluster.api)
    with contextlib.ExitStack() as made:
        made.callback(tidy, cluster)
        run(commands("kubectl create namespace", "kubectl --namespace gpulease-system set env"))
        run(commands("sed 's/^          c,$", "helm upgrade"))
        subprocess.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "cni0"], check=True)
        made.callback(
            subprocess.run, ["ip", "address", "delete", f"{ADDRESS}/32", "dev", "cni0"], check=True
        )
        label_node(cluster, "user")
        made.callback(label_node, cluster, None)
        path = f"/api/v1/namespaces/{shipped.OWN_NAMESPACE}/secrets/gpulease-{LAB}"
        token = base64.b64decode(cluster.api.get(path)["data"]["token"]).decode()
        first = charted_site(
            cluster, one, chart.Install(edits=(told,)), POLICY, {"LAB2_TOKEN": token}
        )
        site = made.enter_context(first)
        install = chart.Install(release=LAB, namespace=LAB)
        second = further_hub(cluster, other, install, checkout / "values-lab2.yaml", ADDRESS)
        yield Campus(site, made.enter_context(second))


def tidy(cluster: Cluster) -> None:
    """Remove what the page's commands made."""
    api = cluster.api
    own = f"namespaces/{shipped.OWN_NAMESPACE}"
    for path in (
        f"/api/v1/{own}/secrets/gpulease-{LAB}",
        f"/apis/networking.k8s.io/v1/{own}/networkpolicies/gpulease-service-{LAB}",
    ):
        if api.find(path) is not None:
            api.delete(path)
    for each in shipped.documents(shipped.USER_NAMESPACES):
        if each["kind"] != "Kustomization":
            rights.remove(api, each)
    delete_namespace(api, LAB)


async def test_namesakes_of_two_releases_compute_apart_and_give_back(campus: Campus) -> None:
    """Hub, server, GPU cell, reclaim, for ada of each hub at the same time."""
    first, second = campus.first, campus.second
    async with at_work(first, "ada") as ours, at_work(second, "ada") as theirs:
        await ours.run("numbers = list(range(1000))")
        await theirs.run("numbers = list(range(2000))")
        await asyncio.gather(*(each.run("%%gpu\ntotal = sum(numbers)") for each in (ours, theirs)))
        pods = {each["metadata"]["namespace"]: each for each in first.lease_pods()}
        assert pods.keys() == {first.install.namespace, LAB}
        users = {
            space: each["metadata"]["annotations"][labels.USER] for space, each in pods.items()
        }
        assert users == {first.install.namespace: "ada", LAB: f"{LAB}/ada"}
        for space, each in pods.items():
            (owner,) = each["metadata"]["ownerReferences"]
            assert first.cluster.api.pod(space, owner["name"])["metadata"]["uid"] == owner["uid"]
        assert await seen_by(ours) == {"ada"}
        assert await seen_by(theirs) == {f"{LAB}/ada"}
        for person in (ours, theirs):
            await person.watch.wait_for("ended", seconds=LONG)
            assert person.watch.lease is not None
            assert person.watch.lease["reason"] == "idle"
        await wait_for_async(lambda: not first.lease_pods(), LONG, "the lease pods to be gone")
        assert "total 499500" in (await ours.run("print('total', total)")).text
        assert "total 1999000" in (await theirs.run("print('total', total)")).text


async def seen_by(student: Student) -> set[str]:
    """Return whose leases somebody sees."""
    found = await student.browser.service_api("GET", "leases?state=live")
    return {each["user"] for each in found["items"]}
