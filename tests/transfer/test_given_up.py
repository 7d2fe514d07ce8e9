"""Whose ``__del__`` runs, and how often: as in one process."""

import sys
import threading

import pytest

from gpulease.transfer.values import given_up
from tests.transfer.companion_main import run

CLASS = (
    "def note(text):\n    with open({path!r}, 'a') as file:\n        file.write(text)\n"
    "class T:\n    def __init__(self, name): self.name = name; self.v = 1\n"
    "    def __del__(self): note(self.name)\n"
)
PROGRAMS = {
    "changed": ["t = T('a')", "t.v += 1", "t.v += 1", "del t"],
    "bound anew": ["t = T('a')", "t = T('b')", "t = T('c')", "t.v", "t = 1"],
    "in a list": [
        "t = [T('a'), T('b')]", "del t[1]", "t.append(T('c'))", "t[0].v = 3", "t.clear()", "t",
    ],
    "two names": ["t = T('a')", "u = t", "del t", "u.v = 2", "u = 1"],
    "deleted where it was not made": ["t = T('a')", "pass", "del t", "pass"],
    "deleted with what it holds": [
        "t = T('a'); t.other = T('b')", "t.other.v = 2", "u = t.other", "del t", "u.v", "del u",
    ],
    "in a function": [
        "def f(): t = T('a'); return t.v", "f()", "f()", "k = T('k')", "k.v = f()", "k.v", "k = 0",
    ],
    "another __del__": [
        "t = T('a')", "t.v = 2",
        "def other(self): note(self.name.upper())\nT.__del__ = other",
        "t.v = 3", "t.v = 4", "del t", "t = T('b')", "t = 1", "t", "t",
        "del T.__del__; t = T('c')", "t.v = 2", "del t",
    ],
}  # fmt: skip


def ran(path):
    return path.read_text() if path.exists() else ""


def plain(program, path):
    """Run in one process; return whose ``__del__`` has run after each cell."""
    space = {"__name__": "__main__"}
    seen = []
    run(space, CLASS.format(path=str(path)))
    for source in program:
        run(space, source)
        seen.append(ran(path))
    return seen


def alternate(pair, program, path, first):
    pair.home(CLASS.format(path=str(path)))
    for number, source in enumerate(program):
        (pair.home if (number + first) % 2 else pair.gpu)(source)
        yield ran(path)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs_once_and_where_the_notebook_lets_go(pair, tmp_path, program, first):
    program = PROGRAMS[program]
    expected = plain(program, tmp_path / "plain")
    seen = list(alternate(pair, program, tmp_path / "log", first))
    assert list(zip(program, seen, strict=True)) == list(zip(program, expected, strict=True))
    pair.side.disconnect(died=False)
    pair.companion.close()
    assert ran(tmp_path / "log") == expected[-1]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("program", PROGRAMS)
def test_where_the_side_that_lets_go_never_had_it_it_runs_in_the_next_switch(
    new_pair, tmp_path, program, first
):
    pair = new_pair(settings={"small_bytes": -1, "eager_bytes": -1})
    pair.attach()
    program = PROGRAMS[program]
    expected = plain(program, tmp_path / "plain")[-1]
    list(alternate(pair, program, tmp_path / "log", first))
    pair.gpu("globals()")
    pair.home("globals()")
    assert sorted(ran(tmp_path / "log")) == sorted(expected)


def test_what_comes_after_its_name_was_deleted_is_a_copy(new_pair, tmp_path):
    pair = new_pair(settings={"small_bytes": -1, "eager_bytes": -1})
    pair.attach()
    pair.home(CLASS.format(path=str(tmp_path / "log")))
    pair.gpu("t = T('a'); t.other = T('b'); u = t.other")
    pair.home("del t")
    assert pair.side.drain(60).done  # the variables' one group comes without a cell
    pair.gpu("globals()")
    pair.home("globals()")
    assert ran(tmp_path / "log") == "a"


def test_what_another_thread_lets_go_of_meanwhile_has_its_own():
    ran = []

    class T:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            ran.append(self.name)

    given_up.met(T)
    kept, copies = [T("a")], [T("b"), T("c")]
    given_up.share([*kept, *copies])
    with given_up.quietly(), given_up.quietly():
        copies.pop()
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        T("d")  # there is no other one of it
        assert ran == ["a"]
    assert ran == ["a", "d"]
    copies.pop()
    assert ran == ["a", "d", "b"]


def test_a_class_is_what_it_was_afterwards(pair):
    pair.home("class T:\n    def __del__(self): pass\nt = T()\nfinalize = T.__del__")
    pair.gpu("t.v = 1\nsame = T.__del__ is finalize")
    pair.home("assert same and T.__del__ is finalize and not hasattr(finalize, '__wrapped__')")


def test_an_error_of_a_del_is_told_and_stops_nobody(monkeypatch):
    class T:
        def __del__(self):
            raise ValueError("at the end")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(str(args.exc_value)))
    given_up.met(T)
    with given_up.quietly():
        T()
        assert told == []
    assert told == ["at the end"]
