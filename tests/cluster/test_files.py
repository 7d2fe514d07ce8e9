"""A home on no volume: a student's files are mirrored in lease pods, and copied back from them."""

import re
from collections.abc import Iterator

import pytest

from testcluster.cluster import Cluster
from testcluster.site import shipped
from testcluster.site.people import LONG, at_work
from testcluster.site.ready import several_nodes
from testcluster.site.site import Site, running_site
from tests.cluster.conftest import POLICY
from tests.cluster.test_several_nodes import LAUNCH
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def unmounted(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose servers have their homes on no volume."""
    directory = tmp_path_factory.mktemp("unmounted")
    several = POLICY.replace("pool: cards\n", "pool: cards\n    max_count: 2\n")
    with running_site(cluster, directory, several, mount_homes=False) as running:
        yield running
    shipped.remove(cluster.api, shipped.SEVERAL_NODES)  # what a site has not asked for it lacks


async def test_files_travel_to_the_lease_pod_and_home_again(unmounted: Site) -> None:
    site = unmounted
    async with at_work(site, "mira") as mira:
        await mira.run(
            "import os, pathlib\n"
            "pathlib.Path('data.csv').write_text('1\\n2\\n3\\n')\n"
            "pathlib.Path('helper.py').write_text('def double(x): return 2 * x')\n"
            "open('film.raw', 'wb').truncate(2 * 2**30)"
        )
        away = await mira.run(
            "%%gpu\nimport os, helper\n"
            "total = sum(int(line) for line in open('data.csv'))\n"
            "os.makedirs('out', exist_ok=True)\n"
            "open('out/total.txt', 'w').write(str(helper.double(total)))\n"
            "print('ran@', os.environ['HOSTNAME'], os.path.exists('film.raw'), os.getcwd())"
        )
        found = re.search(r"ran@ (\S+) (\S+) (\S+)", away.text)
        assert found is not None
        (pod,) = site.lease_pods()
        assert found.groups() == (pod["metadata"]["name"], "False", "/home/jovyan")
        volumes = [each for each in pod["spec"]["volumes"] if "emptyDir" in each]
        assert volumes
        assert "persistentVolumeClaim" not in str(pod["spec"]["volumes"])

        home = await mira.run("print(os.environ['HOSTNAME'], open('out/total.txt').read(), total)")
        assert home.text.strip().startswith("jupyter-mira 12 6")
        assert "film.raw (2.1 GB): not on the GPU" in (await mira.run("%gpu")).text

        await mira.watch.wait_for("ended", seconds=LONG)
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
        assert "12 6" in (await mira.run("print(open('out/total.txt').read(), total)")).text
        again = await mira.run("%%gpu\nprint(sorted(os.listdir()), open('out/total.txt').read())")
        assert "'out'" in again.text
        assert again.text.strip().endswith("12")


#: Reads what home wrote, and writes a file that says which pod it was written in.
PART = (
    "import os, pathlib\n"
    "said = f\"{os.environ['HOSTNAME']} {open('word.txt').read()}\"\n"
    "pathlib.Path(f\"part{os.environ['RANK']}.txt\").write_text(said)"
)


async def test_what_several_nodes_write_comes_home(unmounted: Site) -> None:
    await several_nodes(unmounted, LONG)
    async with at_work(unmounted, "noor") as noor:
        await noor.run("import pathlib; pathlib.Path('word.txt').write_text('hello')")
        launched = f"%%gpu --count 2 --nodes 2\noptions, program = [], {PART!r}\n{LAUNCH}"
        assert "status 0" in (await noor.run(launched)).text
        pods = sorted(each["metadata"]["name"] for each in unmounted.lease_pods())
        assert len(pods) == 2
        home = await noor.run(
            "for rank in range(2):\n    print('home@', open(f'part{rank}.txt').read())"
        )
        assert sorted(re.findall(r"home@ (\S+) hello", home.text)) == pods
