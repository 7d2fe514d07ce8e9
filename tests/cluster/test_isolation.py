"""Two clusters on one machine do not meet, and one whose owner is killed leaves nothing."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testcluster import namespaces
from testcluster.cluster import Cluster
from testcluster.layout import Layout
from testcluster.processes import REPOSITORY
from testcluster.site.site import PROCESSES
from tests.helpers import process_is_gone, wait_for

pytestmark = pytest.mark.cluster

OWNER = """
import sys
from pathlib import Path
from testcluster.cluster import Cluster
started = Cluster.up(Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gplk-"))
    yield made
    if (made / "cluster.json").exists():
        namespaces.remove(Layout.load(made))
    shutil.rmtree(made)


def test_second_cluster_meets_nobody_and_leaves_nothing_when_killed(
    cluster: Cluster, directory: Path
) -> None:
    command = [sys.executable, "-c", OWNER, str(directory)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "up\n"
            second = Cluster.at(directory)
            assert second.layout.number != cluster.layout.number
            assert second.layout.network_namespace != cluster.layout.network_namespace
            holder = namespaces.holder_of(second.layout)
            assert holder is not None
            inside = [holder, *(p.pid for p in psutil.Process(holder).children(recursive=True))]
            inside += [
                pid for name in second.processes.names() if (pid := second.processes.pid(name))
            ]
        finally:
            owner.send_signal(signal.SIGKILL)
    wait_for(lambda: all(map(process_is_gone, inside)), 120, "every process of it gone")
    assert cluster.api.items("/api/v1/nodes")  # the first one never noticed

    namespaces.remove(second.layout)
    assert not Path(f"/run/netns/{second.layout.network_namespace}").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{second.layout.control_group}"))
    assert str(directory) not in Path("/proc/self/mounts").read_text(encoding="utf-8")


SITE = """
import sys, tempfile
from pathlib import Path
from testcluster.cluster import Cluster
from tests.cluster.conftest import POLICY
from testcluster.site.site import running_site

cluster = Cluster.at(Path(sys.argv[1]))
cluster.enter()
with running_site(cluster, Path(sys.argv[2]), POLICY) as site:
    site.kill("agent")
    site.start("agent")
    print(*site.pids(), flush=True)
    sys.stdin.read()
"""


def test_a_site_whose_test_is_killed_leaves_no_process(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SITE, str(cluster.layout.directory), str(tmp_path)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdout is not None
            pids = [int(word) for word in owner.stdout.readline().split()]
            assert len(pids) == len(PROCESSES)
            assert not any(map(process_is_gone, pids))
        finally:
            owner.send_signal(signal.SIGKILL)
    wait_for(lambda: all(map(process_is_gone, pids)), 120, "every process of the site gone")


def test_record_says_who_holds_a_number(cluster: Cluster) -> None:
    record = json.loads(cluster.layout.record.read_text(encoding="utf-8"))
    assert record["directory"] == str(cluster.layout.directory)
    assert not process_is_gone(record["holder"])
