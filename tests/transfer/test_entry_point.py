"""What another package enters for its library, by the entry point that the documentation shows."""

import re
import sys
from pathlib import Path

import pytest

from gpulease.transfer import state, ways

DOCS = Path(__file__).parents[2] / "docs" / "transfer.md"
MYLIB = """
import threading
class Session:
    def __init__(self, **options):
        self.options, self.found, self.connection = options, [], connect()
def connect(): return threading.Lock()
"""


def _documented():
    section = DOCS.read_text().partition("### Your own library")[2].partition("\n## ")[0]
    blocks = dict(re.findall(r"```(toml|python)\n(.*?)```", section, re.DOTALL))
    pattern = r'\[project\.entry-points\."(.*)"\]\n(.*)\n'
    group, line = re.fullmatch(pattern, blocks["toml"]).groups()
    package = ways.__name__.rpartition(".")[0]
    return group, line, blocks["python"].replace("gpulease.transfer ", package + " ")


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Install a package with this text and entry point."""

    def install(group, line, text):
        (tmp_path / "mylib_gpulease.py").write_text(text)
        info = tmp_path / "mylib_gpulease-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib_gpulease\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")

    (tmp_path / "mylib.py").write_text(MYLIB)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("_opened", "_by_class", "_raw"):
        monkeypatch.setattr(ways, name, type(getattr(ways, name))(getattr(ways, name)))
    ways.rooms.cache_clear()
    yield install
    for module in ("mylib", "mylib_gpulease"):
        sys.modules.pop(module, None)
    ways.rooms.cache_clear()
    ways._known.clear()


def test_the_documented_package_lets_its_objects_travel_and_keeps_what_they_share(
    installed, new_pair
):
    installed(*_documented())
    pair = new_pair()
    pair.attach()
    pair.home("import mylib; s = mylib.Session(a=1); found = s.found")
    pair.gpu("s.found.append(2); took = s.connection.acquire(blocking=False)")
    pair.home("seen = (s.options, s.found is found, found, took, s.connection.locked())")
    assert pair.ns["seen"] == ({"a": 1}, True, [2], True, False)
    pair.gpu("s = mylib.Session(b=[s]); s.options['b'].append(s)")
    pair.home("seen = (s.options['b'][1] is s, s.options['b'][0].found is found)")
    assert pair.ns["seen"] == (True, True)


def test_one_that_does_not_load_is_logged_and_its_objects_travel_as_without_it(
    installed, new_pair, caplog
):
    group, line, _ = _documented()
    installed(group, line, "raise OSError('no such server')")
    pair = new_pair()
    pair.attach()
    pair.home("import mylib; s = mylib.Session(a=1)")
    pair.gpu("s.options['b'] = 2")
    pair.home("seen = s.options")
    assert pair.ns["seen"] == {"a": 1, "b": 2}
    assert "the room of mylib (mylib_gpulease) does not open" in caplog.text
    assert "no such server" in caplog.text


def test_a_row_of_the_process_state_waits_until_a_cell_imports_its_library(installed, monkeypatch):
    group, line, _ = _documented()
    text = "import mylib\nfrom gpulease.transfer import state\n".replace(
        "gpulease.transfer", ways.__name__.rpartition(".")[0]
    )
    text += (
        "state.enter({'mylib.rate': (lambda: mylib.rate, lambda v: vars(mylib).update(rate=v))})"
    )
    installed(group, line, text)
    for name in ("_ROWS", "_later"):
        monkeypatch.setattr(state, name, dict(getattr(state, name)))
    monkeypatch.setitem(ways.ROOMS, "other", "no_such_room_is_asked_for")
    state.apply({"mylib.rate": 5, "other.rate": 6})
    import mylib

    assert mylib.rate == 5
    assert "other" not in ways._opened
    assert state.read()["mylib.rate"] == 5
