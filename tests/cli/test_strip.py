"""``gpulease strip``: what is left of a notebook runs in a plain kernel, and does the same."""

import json

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from gpulease.cli import main
from gpulease.commands.strip import stripped

CELLS = {
    "%%gpu --class big\nx = 1": "x = 1",
    "\n  %%gpu\n%%time\nx = 1": "%%time\nx = 1",
    "%%time\n%gpu keep\nx = 1": "%%time\nx = 1",
    "%%cpu\nx = 1": "x = 1",
    "%load_ext gpulease\n%load_ext autoreload": "%load_ext autoreload",
    "%reload_ext gpulease\n%gpu connect local": "",
    "if True:\n    %gpu on\nx = 1": "if True:\n    pass\nx = 1",
    "with gpu():\n    x = 1\n    y = '''\n  a'''": "if True:\n    x = 1\n    y = '''\n  a'''",
    "for i in range(2):\n    with gpu('big', count=2):  # now\n        x = i": (
        "for i in range(2):\n    if True:  # now\n        x = i"
    ),
    "with gpu(\n    'big',\n):\n    x = 1": "if True:\n    x = 1",
    "\n\nwith gpu():\n    x = 1": "if True:\n    x = 1",
    "with (gpu()):\n    x = 1": "if True:\n    x = 1",
    "with gpu(): x = 1": "if True: x = 1",
    "ö = 'ä'; 1\nif ö:\n    with gpu('ä'): x = 'ü'": "ö = 'ä'; 1\nif ö:\n    if True: x = 'ü'",
    "import functools\n@functools.cache\n@gpu.run\ndef f():\n    return 1": (
        "import functools\n@functools.cache\ndef f():\n    return 1"
    ),
    "!true\nfiles = !ls\n%gpu\nwith gpu():\n    x = 1": "!true\nfiles = !ls\nif True:\n    x = 1",
    # What only looks like it stays as it is.
    "text = '''\n%gpu on\nwith gpu():\n'''": None,
    "%%html\n<b>%gpu</b>": None,
    "# %%gpu": None,
    "with other.gpu():\n    x = 1": None,
    "\n\nx = 1  \n\n": None,
}


@pytest.mark.parametrize("source", CELLS)
def test_a_cell_without_gpulease(source):
    expected = CELLS[source]
    found = stripped(source)
    assert found == (source if expected is None else expected)
    assert stripped(found) == found


def notebook(*sources, **metadata):
    made = nbformat.v4.new_notebook(metadata=metadata)
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return made


def test_it_runs_where_there_is_no_gpulease(tmp_path):
    made = notebook(
        "%load_ext gpulease",
        "%%gpu\nx = 1",
        "with gpu('big'):\n    x += 1",
        "@gpu.run\ndef f(): return x + 1\ny = f()",
        gpulease={"cells": "auto"},
        kernelspec={"name": "python3", "display_name": "Python"},
    )
    made.cells[1].metadata["gpulease"] = {"seconds": 1}
    path, out = tmp_path / "lab.ipynb", tmp_path / "plain.ipynb"
    nbformat.write(made, path)
    before = path.read_text()
    assert main(["strip", str(path), "--output", str(out)]) == 0
    assert path.read_text() == before
    assert "gpu" not in out.read_text()
    assert main(["strip", str(path), "--in-place"]) == 0
    assert path.read_text() == out.read_text()
    shell = InteractiveShell()
    for cell in nbformat.read(out, as_version=4).cells:
        shell.run_cell(cell.source).raise_error()
    assert shell.user_ns["y"] == 3


def test_what_it_cannot_take_out_is_named(tmp_path, capsys):
    path = tmp_path / "lab.ipynb"
    nbformat.write(notebook("x = 1", "with gpu(), open('f'):\n    x = 2"), path)
    assert main(["strip", str(path), "--in-place"]) == 1
    assert capsys.readouterr().err == f"{path}: cell 2 still needs gpulease.\n"


def test_a_graders_cell_stays_when_it_is_empty(tmp_path):
    made = notebook("%gpu on", "%gpu on")
    made.cells[0].metadata["nbgrader"] = {"grade_id": "a"}
    path = tmp_path / "lab.ipynb"
    nbformat.write(made, path)
    main(["strip", str(path), "--in-place"])
    (kept,) = json.loads(path.read_text())["cells"]
    assert kept["metadata"]["nbgrader"] == {"grade_id": "a"}


def test_bad_input_says_what_to_do(tmp_path, capsys):
    text = tmp_path / "text.ipynb"
    text.write_text("no notebook")
    assert main(["strip", str(text), "--in-place"]) == 2
    assert "it is no notebook" in capsys.readouterr().err
    assert main(["strip", "a.ipynb", "b.ipynb", "--output", "c.ipynb"]) == 2
    assert "--in-place" in capsys.readouterr().err
    nbformat.write(notebook("x"), text)
    assert main(["strip", str(text), "--output", str(tmp_path / "none" / "x.ipynb")]) == 2
    assert "cannot be written" in capsys.readouterr().err
