"""A real kernel's GPU cells in a lease pod that does not see home's files: they are mirrored.

The pod's process runs in a mount namespace of its own in which home's directory is an empty file
system at the same path, as an ``emptyDir`` in home's place is.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpulease.protocol import names as protocol
from tests.helpers import may_mount, wait_for
from tests.kernel.parts import Cell
from tests.kernel.site import Site, connected

ELSEWHERE = 'mount --make-rprivate / && mount -t tmpfs -o mode=755 none {home} && exec "$@"'
MIRRORED = ["unshare", "--mount", "sh", "-c", ELSEWHERE, "sh"], {protocol.ENV_MIRROR: "{home}"}


pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not may_mount(), reason="needs root and mount namespaces"),
]


def said(cell: Cell) -> str:
    """Return everything that stands under a cell."""
    return cell.shown() + cell.text() + cell.text("stderr")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with connected(tmp_path_factory.mktemp("mirrored"), *MIRRORED) as made:
        yield made


@pytest.fixture
def leaving(tmp_path: Path) -> Iterator[Site]:
    """One for a test that ends its pod, or the notebook's tie to it."""
    with connected(tmp_path, *MIRRORED) as made:
        yield made


def test_a_gpu_cell_reads_and_writes_the_students_files(site):
    (site.work / "data.csv").write_text("1\n2\n3\n")
    (site.work / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    absolute = str(site.work / "data.csv")
    printed = site.gpu(
        "import os, helper\n"
        "total = sum(int(line) for line in open('data.csv'))\n"
        f"same = open({absolute!r}).read() == open('data.csv').read()\n"
        "os.makedirs('out', exist_ok=True)\n"
        "open('out/total.txt', 'w').write(str(helper.double(total)))\n"
        "print(total, same, {'data.csv', 'helper.py', 'out'} <= set(os.listdir()))"
    )
    assert printed.startswith("6 True True")
    assert site.kernel.run("print(open('out/total.txt').read())").text() == "12\n"
    assert (site.work / "out/total.txt").read_text() == "12"


def test_the_pod_really_has_another_file_system(site):
    here = os.stat(site.work).st_dev  # noqa: PTH116
    assert site.gpu("import os\nprint(os.stat('.').st_dev)") != f"{here}\n"


def test_a_file_that_both_changed_is_named_under_the_cell(site):
    (site.work / "notes.txt").write_text("first")
    site.gpu("pass")
    gate = site.work.parent.parent / "gate"  # outside home: both sides see the same
    code = (
        "import pathlib, time\npathlib.Path('notes.txt').write_text('by the GPU')\n"
        f"print('written', flush=True)\nwhile not pathlib.Path({str(gate)!r}).exists():\n"
        "    time.sleep(0.02)"
    )

    def change() -> None:
        (site.work / "notes.txt").write_text("by me")
        gate.touch()

    cell = site.kernel.run(
        f"%%gpu\n{code}",
        when=lambda m: "written" in str(m["content"].get("text", "")),
        do=change,
    )
    assert cell.ok, cell.traceback
    assert "notes.txt was changed here and by the GPU" in said(cell)
    assert (site.work / "notes.txt").read_text() == "by me"
    assert (site.work / "notes (from GPU).txt").read_text() == "by the GPU"


def test_a_file_that_was_left_out_explains_its_absence(site):
    with (site.work / "film.raw").open("wb") as file:
        file.truncate(2 * 2**30)
    cell = site.kernel.run("%%gpu\nopen('film.raw')")
    assert cell.error.startswith("FileNotFoundError")
    assert "larger than 1.1 GB" in cell.traceback
    status = site.kernel.run("%gpu").text()
    assert f"in {site.work} are mirrored on the GPU" in status
    assert "film.raw (2.1 GB): not on the GPU" in status
    (site.work / "film.raw").unlink()
    site.gpu("pass")
    assert "film.raw" not in site.kernel.run("%gpu").text()


def test_a_directory_that_the_notebook_changes_to_is_mirrored_too(site):
    other = site.work.parent / "other"
    other.mkdir()
    (other / "here.txt").write_text("found")
    site.kernel.run(f"%cd {other}")
    assert site.gpu("print(open('here.txt').read())") == "found\n"
    site.kernel.run(f"%cd {site.work}")
    (site.work / "back.txt").write_text("again")
    assert "back.txt" in site.gpu("import os\nprint(os.listdir())")
    cell = site.kernel.run("%cd /tmp\n")
    cell = site.kernel.run("%%gpu\n1")
    assert "only what lies in" in said(cell)
    site.kernel.run(f"%cd {site.work}")


def test_what_a_background_process_wrote_comes_home_when_the_gpu_is_returned(leaving):
    leaving.gpu(
        "import subprocess\np = subprocess.Popen(['sh', '-c', 'sleep 1; echo late > late'])"
    )
    leaving.gpu("p.wait()\nimport shutil; shutil.copy('late', 'later')")
    assert (leaving.work / "later").read_text() == "late\n"
    leaving.gpu("q = subprocess.Popen(['sh', '-c', 'sleep 1; echo last > last'])")
    leaving.gpu("q.wait()\ndel p, q")
    cell = leaving.kernel.run("%gpu return")
    assert cell.ok, cell.traceback
    assert (leaving.work / "last").read_text() == "last\n"


def test_files_of_a_cell_whose_companion_died_come_home_with_the_next(site):
    cell = site.kernel.run("%%gpu\nimport os\nopen('saved', 'w').write('yes')\nos._exit(1)")
    assert not cell.ok
    assert not (site.work / "saved").exists()
    site.gpu("pass")
    assert (site.work / "saved").read_text() == "yes"


def test_a_pod_that_is_told_to_stop_brings_files_home_first(leaving):
    leaving.gpu(
        "import subprocess\nbackground = subprocess.Popen("
        "['sh', '-c', 'sleep 1; echo written > in-the-background; sleep 60'])"
    )
    leaving.gpu("import os, time\nwhile not os.path.exists('in-the-background'): time.sleep(0.05)")
    leaving.gpu("background.kill()\nbackground.wait()\ndel background")
    (leaving.work / "in-the-background").unlink()
    leaving.gpu("subprocess.Popen(['sh', '-c', 'sleep 2; echo late > in-the-background'])\nNone")
    wait_for(lambda: _inside(leaving, "in-the-background"), 60, "the file on the GPU")
    assert not (leaving.work / "in-the-background").exists()
    leaving.pod.process.terminate()
    wait_for(lambda: leaving.pod.process.poll() is not None, 90, "the pod's end")
    assert leaving.pod.last_line() == "gpulease.companion: ended: stopped"
    assert (leaving.work / "in-the-background").read_text() == "late\n"


def _inside(site: Site, name: str) -> bool:
    """Whether the pod's file system has a file."""
    return Path(f"/proc/{site.pod.process.pid}/root{site.work / name}").exists()
