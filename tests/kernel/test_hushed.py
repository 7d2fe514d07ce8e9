"""What a module says when it is imported is said once, under the cell that imports it."""

from pathlib import Path

import pytest

from tests.kernel.parts import HomeKernel

LOUD = """\
import sys, warnings
print("read the data")
print("in a while", file=sys.stderr)
warnings.warn("it is old", FutureWarning)
kept = sys.stdout

class Model:
    def __setstate__(self, state):
        print("made anew")
        self.__dict__.update(state)

def score(x):
    return x + 1
"""


@pytest.mark.parametrize("made", ["home", "gpu"])
def test_a_module_that_arrives_with_a_value_is_imported_in_silence(
    home: HomeKernel, tmp_path: Path, made: str
) -> None:
    name = f"loud_{made}"
    (tmp_path / f"{name}.py").write_text(LOUD)
    here, there = ("", "%%gpu\n") if made == "home" else ("%%gpu\n", "")
    home.run(f"%cd -q {tmp_path}")
    first = home.run(f"{here}import {name}\nm = {name}.Model(); m.x = 1\nf = {name}.score")
    assert first.text() == "read the data\n"
    assert "it is old" in first.text("stderr")
    second = home.run(f"{there}f(m.x)")
    assert second.result == "2", second.traceback
    assert second.kinds() == ["execute_result"]
    kept = home.run(f"{there}print('here', file={name}.kept)\n{name}.kept is sys.stdout")
    assert kept.text() == "here\n", "it has the real stream"
    warned = home.run(f"{there}import warnings\nwarnings.warn('mine')")
    assert "mine" in warned.text("stderr")


def test_a_filter_that_makes_errors_of_warnings_stops_no_value(
    home: HomeKernel, tmp_path: Path
) -> None:
    (tmp_path / "loud_error.py").write_text(LOUD)
    home.run(f"%cd -q {tmp_path}")
    home.run("import loud_error, warnings\nm = loud_error.Model(); m.x = 1")
    home.run("warnings.simplefilter('error')")
    cell = home.run("%%gpu\nm.x")
    assert cell.result == "1", cell.traceback
    assert home.run("%%gpu\nwarnings.warn('mine')").error == "UserWarning: mine"
    assert home.run("warnings.warn('mine')").error == "UserWarning: mine"


def test_a_module_finds_its_folder_and_its_environment_when_it_arrives(
    home: HomeKernel, tmp_path: Path
) -> None:
    """They were set before it was imported, in the very cells that its values come from."""
    (tmp_path / "config.txt").write_text("seven")
    (tmp_path / "reads_at_once.py").write_text(
        "import os\nfound = open('config.txt').read(), os.environ['READ_AT_ONCE']\n"
        "def show():\n    return found\n"
    )
    home.run(f"%cd -q {tmp_path}")
    home.run("import os\nos.environ['READ_AT_ONCE'] = 'yes'\nfrom reads_at_once import show")
    cell = home.run("%%gpu\nshow()")
    assert cell.result == "('seven', 'yes')", cell.traceback
