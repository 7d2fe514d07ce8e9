"""Setting up: pins that fit the ranges, a clear word where it cannot work, targets that exist."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers import chromium_path, postgresql_bin

ROOT = Path(__file__).parents[2]


@pytest.fixture
def set_up():
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "tools" / "set_up.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {
        canonicalize_name(name): pinned
        for line in lines
        if line and not line.startswith("#")
        for name, pinned in [line.split("==")]
    }


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        texts += extra
    return [found for text in texts if (found := Requirement(text)).name != "gpulease"]


def test_every_requirement_is_pinned_within_its_range():
    pinned = pins()
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"constraints.txt lacks {name}"
        assert requirement.specifier.contains(pinned[name], prereleases=True), name


def test_the_pins_are_versions_only():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"https?:|@|file:|--|\\\n", text)


def test_the_oldest_hub_is_the_oldest_that_the_ranges_allow():
    """The environment of `make test-hub55` differs in just these, and each is a range's begin."""
    lines = (ROOT / "constraints-hub55.txt").read_text(encoding="utf-8").splitlines()
    pinned = {Requirement(line).name: line for line in lines if not line.startswith("#")}
    assert set(pinned) == {"jupyterhub", "jupyterhub-kubespawner"}
    for requirement in requirements():
        if requirement.name in pinned:
            (exact,) = Requirement(pinned[requirement.name]).specifier
            (begin,) = [each for each in requirement.specifier if each.operator == ">="]
            assert exact.version in {begin.version, f"{begin.version}.0"}


def test_an_old_python_is_told_which_one_is_needed(set_up, monkeypatch):
    monkeypatch.setattr(set_up.sys, "version_info", (3, 10, 0, "final", 0))
    assert "needs Python 3.11 or newer" in set_up.unsuitable()


def test_another_system_is_told_that_it_is_linux_only(set_up, monkeypatch):
    monkeypatch.setattr(set_up.sys, "platform", "darwin")
    assert "Linux only" in set_up.unsuitable()


def test_this_machine_is_suitable(set_up):
    assert set_up.unsuitable() == ""


def test_an_unsuitable_machine_ends_set_up_before_anything_is_made(
    set_up, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(set_up.sys, "platform", "win32")
    monkeypatch.setattr(set_up, "VENV", tmp_path / ".venv")
    assert set_up.main(["demo"]) == 2
    assert "Linux only" in capsys.readouterr().err
    assert not (tmp_path / ".venv").exists()


def test_a_failing_pip_shows_what_it_said(set_up, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(set_up, "VENV", tmp_path)
    monkeypatch.setattr(
        set_up, "pip", lambda: ["sh", "-c", "echo Collecting moon; echo no moon; exit 3"]
    )
    assert set_up.install(["demo"]) == 3
    assert "no moon" in capsys.readouterr().err
    assert "no moon" in (tmp_path / "set-up.log").read_text()
    assert not list(tmp_path.glob(".ready-*"))


def test_make_lists_its_targets():
    listed = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for target in ("setup", "setup-system", "demo", "test", "test-hub55", "check", "bench", "docs"):
        assert re.search(rf"^make {target}\s+\S", listed, re.MULTILINE), target


@pytest.mark.browser
@pytest.mark.postgresql
def test_setup_system_is_quiet_where_everything_is_there():
    assert chromium_path()
    assert postgresql_bin()
    done = subprocess.run(
        [ROOT / "tools" / "setup-system"], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""


def test_setup_system_names_what_it_would_install_where_it_may_not(tmp_path):
    for name in ("bash", "id", "env", "true"):
        found = next(p for p in ("/usr/bin", "/bin") if Path(p, name).exists())
        (tmp_path / name).symlink_to(Path(found, name))
    done = subprocess.run(
        [tmp_path / "bash", ROOT / "tools" / "setup-system"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "chromium" in done.stderr


def test_shared_data_of_the_package_is_where_jupyter_and_ipython_look():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert all((ROOT / source).exists() for source in shared)
    assert set(shared.values()) == {
        "etc/ipython/startup/00-gpulease.py",
        "etc/jupyter/jupyter_server_config.d/gpulease.json",
        "share/jupyter/labextensions/gpulease",
    }


def test_the_base_install_stays_small():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    heavy = {"pydantic", "sqlalchemy", "jupyterhub", "numpy", "pandas", "jupyterlab", "aiohttp"}
    base = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert base & heavy == set()


#: Rooms that an installation has with these extras.
ROOMS = {
    (): ("channel", "companion", "kernel", "mirror", "protocol", "sides", "transfer", "wire"),
    ("lab",): ("lab",),
    ("agent",): ("gpus/agent",),
}


@pytest.mark.parametrize("extras", ROOMS)
def test_what_a_room_imports_comes_with_its_installation(extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"]]
    asked += [each for extra in extras for each in project["optional-dependencies"][extra]]
    names = {canonicalize_name(Requirement(text).name) for text in asked}
    modules = {module for module, dists in packages_distributions().items()
               if any(canonicalize_name(dist) in names for dist in dists)}  # fmt: skip
    known = modules | sys.stdlib_module_names | {"gpulease"} | BROUGHT
    for room in ROOMS[extras]:
        for path in sorted((ROOT / "gpulease" / room).rglob("*.py")):
            if not path.relative_to(ROOT / "gpulease").as_posix().startswith(BESIDE_LIBRARIES):
                assert imported_at_once(path) <= known, path


#: Imported by ``ways`` where the library is.
BESIDE_LIBRARIES = tuple(
    f"transfer/{each}" for each in ("accelerate", "jax", "progress_bars", "torch", "widgets")
)
#: What comes with what is asked for, and is its public part.
BROUGHT = {"IPython", "ipykernel", "jupyter_core", "traitlets"}


def imported_at_once(path: Path) -> set[str]:
    """Return the packages that a module imports when it is imported itself."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def test_nothing_committed_names_this_machine():
    """Paths of a developer's machine and addresses of registries stay out of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    home = str(Path.home())
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file() or path.suffix in {".png", ".ico", ".woff2"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        assert str(ROOT) + os.sep not in text, name
        assert len(home) < 6 or home + os.sep not in text, name


def test_the_installed_version_is_the_projects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert version("gpulease") == project["version"]


def test_the_long_last_step_of_pip_is_told(set_up, capsys):
    set_up.show(133, "to install now (minutes the first time)", last=True)
    assert "133  to install now" in capsys.readouterr().out
