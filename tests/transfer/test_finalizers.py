"""``weakref.finalize`` and what is made with it: each runs once, as in one process."""

import weakref
from pathlib import Path

import pytest

from gpulease.transfer.values.kinds import finalizers
from tests.transfer.companion_main import run

HEAD = (
    "import weakref\n"
    "def note(text, **more):\n    with open({path!r}, 'a') as file:\n"
    "        file.write(text + ''.join(more))\n"
    "class T:\n    def __init__(self, v): self.v = v\n"
)
PROGRAMS = {
    "held by a name": [
        "t = T(1); f = weakref.finalize(t, note, 'a', b=1)", "assert f.alive and f.peek()[0] is t",
        "t.v = 2", "assert f.alive and f.peek()[0].v == 2", "t.v = 3", "del t",
        "assert not f.alive",
    ],
    "held by its object": [
        "t = T(1); t.f = weakref.finalize(t, note, 'a')", "t.v = 2", "t.v = 3", "t = T(4)", "t.v",
    ],
    "held by nobody": [
        "t = T(1); weakref.finalize(t, note, 'a') and None", "t.v = 2", "t.v = 3", "t.v = 4",
        "t.v", "del t", "pass", "pass",
    ],
    "called": [
        "t = T(1); f = weakref.finalize(t, note, 'a')", "f()", "assert not f.alive", "del t",
    ],
    "detached": [
        "t = T(1); f = weakref.finalize(t, note, 'a')", "f.detach() and None",
        "assert not f.alive", "del t", "pass",
    ],
    "two of one object": [
        "t = T(1); fs = [weakref.finalize(t, note, c) for c in 'ab']", "t.v = 2", "fs[0]()",
        "assert [f.alive for f in fs] == [False, True]", "t.v = 3", "del t", "pass",
    ],
    "of an object in a list": [
        "ts = [T(1), T(2)]; fs = [weakref.finalize(t, note, str(t.v)) for t in ts]",
        "ts[0].v = 5", "ts.append(T(6))", "del ts[1]", "fs[0].atexit = False",
        "assert not fs[0].atexit", "ts.clear()", "assert not any(f.alive for f in fs)",
    ],
}  # fmt: skip


def ran(path):
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs_once(pair, tmp_path, program, first):
    space = {"__name__": "__main__"}
    run(space, HEAD.format(path=str(tmp_path / "plain")))
    for source in PROGRAMS[program]:
        run(space, source)
    pair.home(HEAD.format(path=str(tmp_path / "log")))
    for number, source in enumerate(PROGRAMS[program]):
        (pair.home if (number + first) % 2 else pair.gpu)(source)
    assert ran(tmp_path / "log") == ran(tmp_path / "plain")
    pair.side.disconnect(died=False)
    pair.companion.close()
    assert ran(tmp_path / "log") == ran(tmp_path / "plain")


def test_it_is_one_finalizer_also_where_its_object_stays_the_same(pair, tmp_path):
    pair.home(
        HEAD.format(path=str(tmp_path / "log")) + "t = T(1)\nf = weakref.finalize(t, note, 'a')"
    )
    held = pair.ns["f"]
    for _ in range(3):
        pair.gpu("t.v += 1")
        pair.home("t.v += 1")
    assert pair.ns["f"] is held
    pair.home("del t")
    pair.gpu("assert not f.alive")
    assert ran(tmp_path / "log") == "a"


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_a_temporary_directory_lives_as_long_as_its_variable(pair, first):
    one, two = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    one("import tempfile, pathlib\ntd = tempfile.TemporaryDirectory()\nwhere = td.name")
    two("pathlib.Path(td.name, 'x').write_text('1')")
    one("assert pathlib.Path(td.name, 'x').read_text() == '1'\ntd.used = 1")
    two("td.used += 1")
    pair.home("td.used, where")
    where = Path(pair.ns["where"])
    assert where.is_dir()
    pair.side.disconnect(died=False)
    pair.companion.close()
    assert where.is_dir(), "the companion took it away"
    pair.home("td.cleanup()\ndel td")
    assert not where.exists()


def test_a_temporary_directory_is_cleaned_up_on_the_other_side(pair):
    pair.home("import tempfile, os\ntd = tempfile.TemporaryDirectory()\nwhere = td.name")
    pair.gpu("td.cleanup()")
    pair.home("td")
    assert not Path(pair.ns["where"]).exists()
    assert not pair.ns["td"]._finalizer.alive


def test_it_does_not_run_as_the_companion_ends_with_a_part_that_stayed_there(pair, tmp_path):
    log = tmp_path / "log"
    pair.gpu(
        HEAD.format(path=str(log)) + "import threading\n"
        "t = T(threading.Lock()); f = weakref.finalize(t, note, 'a'); keep = iter([t])\n"
        "g = (i for i in [t])"
    )
    pair.side.disconnect(died=False)
    pair.companion.close()
    assert ran(log) == ""


@pytest.mark.parametrize("first", ["home", "gpu"])
def test_what_it_is_called_with_is_what_the_variables_hold(pair, first):
    one, two = (pair.home, pair.gpu) if first == "home" else (pair.gpu, pair.home)
    one(
        "import weakref\nclass T: pass\na, b, ran, more = T(), T(), [], {'k': [1]}\n"
        "fs = weakref.finalize(a, ran.append, 1), weakref.finalize(b, ran.extend, more['k'])"
    )
    two("ran.append(0); more['k'].append(2)")
    one("assert fs[1].peek()[2][0] is more['k'] and fs[0].peek()[1].__self__ is ran")
    two("del a")
    one("assert ran == [0, 1] and not fs[0].alive; more['k'].append(3); del b")
    two("assert ran == [0, 1, 1, 2, 3] and not fs[1].alive")


def test_ended_ones_are_forgotten():
    class Thing:
        pass

    for _ in range(1000):
        thing = Thing()
        finalizers.reduce(weakref.finalize(thing, print))
    assert len(finalizers._keys) == len(finalizers._by_key) < 500
