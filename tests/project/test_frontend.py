"""The JupyterLab extension's bundle: of the source that is here, and in what is installed."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def frontend():
    spec = importlib.util.spec_from_file_location("frontend", ROOT / "tools" / "frontend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bundle_is_of_this_source(frontend):
    kept = json.loads((frontend.BUNDLE / frontend.HASH).read_text())
    assert kept["sha256"] == frontend.source_hash(), "run `make frontend` and commit the bundle"


def test_a_changed_source_has_another_hash(frontend, tmp_path, monkeypatch):
    before = frontend.source_hash()
    copy = tmp_path / "labextension"
    for path in (*frontend.SOURCE.glob("*.js*"), *(frontend.SOURCE / "src").rglob("*.ts*")):
        target = copy / path.relative_to(frontend.SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setattr(frontend, "SOURCE", copy)
    same_without_style = frontend.source_hash()
    assert same_without_style != before
    (copy / "src" / "index.ts").write_text("export default [];")
    assert frontend.source_hash() != same_without_style


def test_it_is_checked_again_where_it_or_its_tests_changed(frontend, tmp_path, monkeypatch):
    for folder in ("src", "test", "node_modules"):
        (tmp_path / folder).mkdir()
    for name in ("package.json", "package-lock.json", "tsconfig.json", "bundle.config.js"):
        (tmp_path / name).touch()
    monkeypatch.setattr(frontend, "SOURCE", tmp_path)
    ran = []

    class Recorded(frontend.Tools):
        def npm(self, *arguments):
            ran.append(arguments[-1])

    tools = Recorded(tmp_path)
    every = ["types", "lint", "test"]
    for changed in ("src/index.ts", "test/words.test.ts", "eslint.config.mjs"):
        (tmp_path / changed).write_text("export default [];")
        tools.check()
        tools.check()
        assert ran == every, changed
        ran.clear()


def test_a_bundle_that_differs_is_named(frontend, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        (root / "static").mkdir(parents=True)
        (root / "static" / "same.js").write_text("1")
    assert frontend.differences(one, other) == []
    (one / "static" / "same.js").write_text("2")
    (other / "more.js").write_text("")
    assert frontend.differences(one, other) == ["more.js", "static/same.js"]


def test_wheel_and_source_archive_have_it():
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shared = hatch["targets"]["wheel"]["shared-data"]
    place = "share/jupyter/labextensions/gpulease"
    assert shared[f"shared-data/{place}"] == place
    assert {"labextension", "shared-data"} <= set(hatch["targets"]["sdist"]["include"])
    bundle = ROOT / "shared-data" / place
    build = json.loads((bundle / "package.json").read_text())["jupyterlab"]["_build"]
    assert (bundle / build["load"]).is_file()


def test_nothing_names_where_packages_come_from(frontend):
    lock = (frontend.SOURCE / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    for path in (frontend.SOURCE / ".npmrc", *frontend.BUNDLE.rglob("*.json")):
        assert not re.search(r"registry\s*=|\"resolved\"|/work/|/home/", path.read_text()), path
