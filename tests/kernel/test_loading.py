"""How the extension gets into kernels that a gpulease hub starts, and into no others."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.parts import HomeKernel

STARTUP = Path(__file__).parents[2] / "shared-data/etc/ipython/startup/00-gpulease.py"
LOADED = "'gpu' in get_ipython().magics_manager.magics['line']"


@pytest.fixture
def ipython_dir(tmp_path: Path) -> Path:
    """An IPython directory with the startup file and a profile of the student's own."""
    startup = tmp_path / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    shutil.copy(STARTUP, startup)
    (startup.parent / "ipython_kernel_config.py").write_text(
        "c.InteractiveShellApp.extensions = ['autoreload']\n"
        "c.InteractiveShellApp.exec_lines = ['own = 1']\n"
    )
    return tmp_path


@pytest.fixture
def kernel(ipython_dir: Path, request: pytest.FixtureRequest) -> Iterator[HomeKernel]:
    started = HomeKernel(ipython_dir, getattr(request, "param", {}))
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize("kernel", [{"GPULEASE_AUTOLOAD": "1"}], indirect=True)
def test_a_hubs_kernel_has_it_at_once_beside_the_students_profile(kernel: HomeKernel) -> None:
    assert kernel.run(LOADED).result == "True"
    found = kernel.run("own, 'autoreload' in get_ipython().magics_manager.magics['line']")
    assert found.result == "(1, True)"
    kernel.run("mine = 1")
    assert kernel.run("%who_ls").result == "['mine']", "no name of ours in the student's list"
    assert kernel.run("%load_ext gpulease").ok, "loading it again is nothing"


def test_elsewhere_it_is_not_loaded(kernel: HomeKernel) -> None:
    assert kernel.run(LOADED).result == "False"
    assert kernel.run("import sys; 'gpulease' in sys.modules").result == "False"


def test_an_environment_without_gpulease_starts_without_a_traceback(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare/bin/python"
    found = subprocess.run(
        [python, "-c", f"exec(open({str(STARTUP)!r}).read()); print(sorted(globals())[-1:])"],
        env={"GPULEASE_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stderr == ""


def test_autoload_imports_nothing_heavy() -> None:
    """Only what ipykernel has loaded already: counted, as a machine's speed is not ours."""
    code = (
        "import ipykernel.kernelapp, sys; before = set(sys.modules)\n"
        "import gpulease.kernel.extension\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(new - {'gpulease'}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "[]"


def test_unload_takes_everything_back(fresh: HomeKernel) -> None:
    fresh.connect(sticky=True)
    assert fresh.run("%unload_ext gpulease").ok
    assert fresh.run(LOADED).result == "False"
    assert fresh.run("import os; os.getpid()").result == str(fresh.pid)
    assert "NameError" in fresh.run("gpu").error
    fresh.connect()
    assert fresh.run("%%gpu\n1 + 1").result == "2"


def test_on_a_python_that_carries_no_variables_a_cell_says_so_before_anybody_waits(
    fresh: HomeKernel,
) -> None:
    fresh.run("import gpulease.sides.versions as versions; versions.NEWEST = (3, 10)")
    sentence = "Variables travel between notebook and GPU on Python 3.11 to 3.10 only"
    assert sentence in fresh.run("%load_ext gpulease").text()
    fresh.run("x = [1]")
    for cell in ("%gpu connect local", "%%gpu\nx.append(2)"):
        assert sentence in fresh.run(cell).traceback
    cell = fresh.run("%%gpu --else cpu\nx.append(3); print(x)")
    assert sentence in cell.shown()
    assert "[1, 3]" in cell.text()
