"""Another package's framework, by the entry point: the one that the documentation shows."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gpulease.transfer import frameworks

DOCS = Path(__file__).parents[2] / "docs" / "transfer.md"
MYLIB = """
import threading
class Session:
    def __init__(self, **options):
        self.options, self.found, self.connection = options, [], connect()
def connect(): return threading.Lock()
"""


@pytest.fixture
def pair(monkeypatch, tmp_path, new_pair):
    """Both sides have the library and the package that is documented."""
    blocks = dict(re.findall(r"```(toml|python)\n(.*?)```", _section(), re.DOTALL))
    group, name = re.fullmatch(
        r'\[project\.entry-points\."(.*)"\]\n(.*)\n', blocks["toml"]
    ).groups()
    (tmp_path / "mylib.py").write_text(MYLIB)
    (tmp_path / "mylib_gpulease.py").write_text(blocks["python"])
    info = tmp_path / "mylib_gpulease-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib_gpulease\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name.replace(chr(34), '')}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    frameworks._known.cache_clear()
    made = new_pair()
    made.attach()
    yield made
    for module in ("mylib", "mylib_gpulease"):
        sys.modules.pop(module, None)
    frameworks._loaded.pop("mylib", None)
    frameworks._by_type.clear()
    frameworks._known.cache_clear()


def _section():
    return DOCS.read_text().partition("### Your own library")[2].partition("\n## ")[0]


def test_the_documented_package_lets_its_objects_travel_and_keeps_what_they_share(pair):
    pair.home("import mylib; s = mylib.Session(a=1); found = s.found")
    pair.gpu("s.found.append(2); took = s.connection.acquire(blocking=False)")
    pair.home("seen = (s.options, s.found is found, found, took, s.connection.locked())")
    assert pair.ns["seen"] == ({"a": 1}, True, [2], True, False)
    pair.gpu("s = mylib.Session(b=[s]); s.options['b'].append(s)")
    pair.home("seen = (s.options['b'][1] is s, s.options['b'][0].found is found)")
    assert pair.ns["seen"] == (True, True)


def test_an_entry_point_that_does_not_load_is_logged_and_left_out(caplog):
    point = EntryPoint("mylib", "no_such_module:FRAMEWORK", "gpulease.frameworks")
    assert frameworks._others(point) is None
    assert "the framework mylib (no_such_module:FRAMEWORK) does not load" in caplog.text


def test_what_a_library_keeps_about_a_class_waits_where_there_is_no_such_library():
    class Node:
        pass

    frameworks.enter(Node, {"library_of_the_gpu": ("functions", len)})
    assert frameworks.entries(Node) == {"library_of_the_gpu": ("functions", len)}
