"""What a person reads of the parameters when they submit a notebook."""

import json
from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from gpulease.runs.submission import advice, read


def cell(text, *tags):
    return {"cell_type": "code", "metadata": {"tags": list(tags)}, "source": text.splitlines(True)}


def test_what_its_gpu_cells_ask_for_stands_in_the_body(tmp_path: Path):
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": []}))
    words = ["a.ipynb", "--count", "4", "--min-count", "2", "--class", "a100"]
    found = read(words, tmp_path, float)
    assert (found["count"], found["min_count"], found["nodes"]) == (4, 2, 1)
    assert found["gpu_class"] == "a100"
    assert read(["a.ipynb"], tmp_path, float)["min_count"] is None
    assert read(["a.ipynb"], tmp_path, float)["at_least"] is None
    assert read(["a.ipynb", "--at-least", "40%"], tmp_path, float)["at_least"] == 40
    for wrong in ("0", "101%", "half"):
        with pytest.raises(GPULeaseError, match="a percent from 1 to 100"):
            read(["a.ipynb", "--at-least", wrong], tmp_path, float)


@pytest.mark.parametrize(
    ("cells", "words", "said"),
    [
        ([cell("import a\nn = 1")], ["-p", "n=5"], "sets n itself"),
        ([cell("n: int = 1"), cell("m=2")], ["-p", "n=5", "-p", "m=3"], "sets n, m itself"),
        ([cell("array_index = 1")], ["--array", "1-3"], "sets array_index itself"),
        ([cell("n = 1", "parameters")], ["-p", "n=5"], ""),
        ([cell("print(n == 1)\nnn = 2\nf(n=3)\nif n:\n    n = 4")], ["-p", "n=5"], ""),
        ([cell("n = 1")], [], ""),
        ([{"cell_type": "markdown"}], ["-p", "n=5"], ""),
        ("no notebook", ["-p", "n=5"], ""),
    ],
)
def test_a_notebook_that_sets_its_parameters_again_is_named(tmp_path: Path, cells, words, said):
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    wanted = read(["a.ipynb", *words], tmp_path, float)
    found = advice(wanted)
    assert said in found
    assert bool(found) == bool(said)
