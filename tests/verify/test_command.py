"""``gpulease verify`` on real kernels: a notebook that may be placed anywhere, one that may not."""

import json

import nbformat
import pytest

from gpulease.cli import main

pytestmark = pytest.mark.processes

GOOD = (
    "import numpy as np\na = np.arange(5.); b = a[1:3]; box = {'in': [a]}",
    "a += 1; print(a)",
    "%%gpu\nb[:] = 9\nprint('there')\na",
    "%%time\nimport random; random.seed(1); r = random.random()",
    "class C: pass\nc = C(); c.box = box\n1 / 0",
)
#: What stays where it is, and is not read where it is not.
STAYS = ("n = 1", "import hashlib\nh = hashlib.sha256(b'a')\nh.hexdigest()", "n += 1\nn")
BAD = (
    "import random\nx = random.random()",
    "g = (i for i in range(3))",
    "first = next(g)",
    "print('first' in globals())",
    "1 + 1",
)


def write(path, sources):
    cells = [nbformat.v4.new_markdown_cell("# Title")]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return str(path)


def test_a_notebook_that_may_be_placed_anywhere(tmp_path, capsys):
    path = write(tmp_path / "good.ipynb", GOOD)
    patterns = [w for p in ("alternating-home", "killed") for w in ("--pattern", p)]
    assert main(["verify", path, *patterns]) == 0
    said = capsys.readouterr().out
    assert "cells that fail there too: 6" in said
    assert "same     alternating-home" in said
    assert "every placement gives what a plain kernel gives" in said


def test_one_that_may_not_says_which_cell_and_what_to_do(tmp_path, capsys):
    path = write(tmp_path / "bad.ipynb", BAD)
    assert main(["verify", path, "--pattern", "alternating-home", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["not_repeatable"] == [{"cell": 2, "name": "x"}]
    finding, aside = report["placements"][0]["findings"]
    assert (finding["cell"], finding["kind"]) == (4, "error")
    assert "g cannot travel" in finding["found"]
    assert "on one side" in finding["advice"]
    assert (aside["cell"], aside["kind"]) == (4, "set aside")
    assert aside["found"].startswith("cell 5; variable")
    assert "first" in aside["found"], "whatever stands for g"


def test_what_stays_on_the_gpu_and_is_read_there_alone_is_named_and_no_error(tmp_path, capsys):
    path = write(tmp_path / "stays.ipynb", STAYS)
    assert main(["verify", path, "--pattern", "alternating-home", "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["placements"][0]["findings"]
    assert (finding["kind"], finding["name"]) == ("stays", "h")
    assert "a running hash" in finding["found"]


@pytest.mark.parametrize("content", ["", "{}", '{"cells": 3}', "not json"])
def test_what_is_no_notebook_is_refused(tmp_path, capsys, content):
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    assert main(["verify", str(path)]) in (1, 2)
    assert "cannot be used" in capsys.readouterr().err


def test_one_that_replaces_what_the_kernels_are_asked_by_is_judged_all_the_same(tmp_path, capsys):
    patch = (
        "import json\nplain = json.dumps\n"
        "json.dumps = lambda o, **k: plain(o, **{**k, 'indent': 1})"
    )
    path = write(tmp_path / "patched.ipynb", (patch, "x = json.dumps([1]); print(x)"))
    assert main(["verify", path, "--pattern", "auto"]) == 0
    assert "same     auto" in capsys.readouterr().out
