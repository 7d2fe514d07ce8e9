"""What runs when an object dies runs once, where the object was made; the object stays there."""

import re

import pytest

from gpulease.errors import GPULeaseError

HEAD = (
    "import weakref\n"
    "def note(text):\n    with open({path!r}, 'a') as file:\n        file.write(text)\n"
    "class T:\n    def __init__(self, v): self.v = v\n"
    "class D(T):\n    def __del__(self): note(self.v)\n"
)
KINDS = {
    "an object with a __del__": ("t = D('a')", "del t"),
    "an object with a __del__ (": (
        "class D(D):\n    __hash__ = None\n    def __eq__(self, other): return self.v == other.v\n"
        "t = D('a')",
        "del t",
    ),
    "a finalizer": ("o = T(1); t = weakref.finalize(o, note, 'a')", "del o"),
}


@pytest.fixture(params=["home", "gpu"])
def sides(request, pair):
    return (pair.home, pair.gpu) if request.param == "home" else (pair.gpu, pair.home)


@pytest.mark.parametrize("kind", KINDS)
def test_it_stays_by_name_and_runs_once_where_it_was_made(pair, sides, tmp_path, kind):
    make, drop = KINDS[kind]
    here, there = sides
    here(HEAD.format(path=str(tmp_path / "log")) + make + "\nn = 1")
    there("n += 1")
    with pytest.raises(GPULeaseError, match="t cannot travel .*it holds " + re.escape(kind)):
        there("t.v")
    assert not (tmp_path / "log").exists()
    here(drop)
    there("assert n == 2")
    here("n")
    assert (tmp_path / "log").read_text() == "a"
    pair.side.disconnect(died=False)
    pair.companion.close()
    assert (tmp_path / "log").read_text() == "a"


def test_a_temporary_directory_stays_and_lives_as_long_as_its_variable(pair, sides):
    here, there = sides
    here("import tempfile, os\ntd = tempfile.TemporaryDirectory()\nwhere = td.name")
    there("assert os.path.isdir(where)")
    with pytest.raises(GPULeaseError, match=r"td cannot travel .*a finalizer"):
        there("td.name")
    here("td.cleanup()")
    there("assert not os.path.isdir(where)")


def test_an_open_archive_stays_and_what_is_read_of_it_travels(pair, sides):
    here, there = sides
    here("import io, numpy as np\nfile = io.BytesIO(); np.savez(file, a=[1, 2]); file.seek(0)")
    here("z = np.load(file); a = z['a']")
    there("assert a.tolist() == [1, 2]")
    with pytest.raises(GPULeaseError, match=r"z cannot travel .*an open archive of numpy"):
        there("z['a']")
    here("assert z['a'].tolist() == [1, 2]; z.close()")
