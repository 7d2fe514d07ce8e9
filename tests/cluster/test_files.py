"""A home on no volume: a student's files are mirrored in the lease pod, and come home from it."""

import re
from collections.abc import Iterator

import pytest

from testcluster.cluster import Cluster
from testcluster.site.people import LONG, at_work
from testcluster.site.site import Site, running_site
from tests.cluster.conftest import POLICY
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def unmounted(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose servers have their homes on no volume."""
    directory = tmp_path_factory.mktemp("unmounted")
    with running_site(cluster, directory, POLICY, mount_homes=False) as running:
        yield running


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
        assert "film.raw (2.0 GiB): not on the GPU" in (await mira.run("%gpu")).text

        await mira.watch.wait_for("ended", seconds=LONG)
        await wait_for_async(lambda: not site.lease_pods(), LONG, "the lease pod to be gone")
        assert "12 6" in (await mira.run("print(open('out/total.txt').read(), total)")).text
        again = await mira.run("%%gpu\nprint(sorted(os.listdir()), open('out/total.txt').read())")
        assert "'out'" in again.text
        assert again.text.strip().endswith("12")
