"""The corpus keeps its rules, is judged by what it shows, and runs; all of it: make test-corpus."""

import json

import pytest

from gpulease.verify.compare import Difference
from gpulease.verify.notebook import CodeCell
from gpulease.verify.placements import placement
from gpulease.verify.runner import CellRun, NotebookRun
from tests.corpus import form, judge
from tests.corpus.__main__ import main

QUICK = ("first_week_lists", "shopping_cart_oop", "numpy_views", "pandas_messy_survey")
TAGS = {"raises-exception", *(f"excepted-{word}" for word in judge.EXCEPTIONS)}


def test_every_notebook_keeps_the_rules():
    notebooks = form.every()
    assert len({notebook.title for notebook in notebooks}) == len(notebooks)
    for notebook in notebooks:
        assert notebook.title, notebook.name
        assert 8 <= len(notebook.cells) <= 25, (notebook.name, len(notebook.cells))
        assert all(cell.source for cell in notebook.cells), notebook.name
        assert {tag for tags in notebook.tags.values() for tag in tags} <= TAGS, notebook.name


def test_cells_are_read_with_their_numbers_and_tags(tmp_path):
    path = tmp_path / "x.ipy"
    path.write_text(
        '# %% [markdown]\n# # T\n# %% tags=["raises-exception"]\n%%time\n1/0\n# %%\n2\n'
    )
    found = form.read(path)
    assert (found.title, found.cells) == ("T", [CodeCell(2, "%%time\n1/0"), CodeCell(3, "2")])
    assert found.tagged("raises-exception") == {2}


@pytest.mark.parametrize(
    ("kind", "cell", "found", "expected"),
    [
        ("output", 2, "2", "silent"),
        ("output", 3, "2", "excepted"),
        ("error", 2, "GPULeaseError: x cannot travel", "loud"),
        ("error", 2, "AttributeError: x", "silent"),
        ("error", 3, "GPULeaseError: x cannot travel", "loud"),
        ("stays", 2, "a generator", "same"),
        ("set aside", 2, "cell 3", "same"),
    ],
)
def test_a_finding_is_judged(kind, cell, found, expected):
    notebook = form.Notebook(None, "T", [], {3: ["excepted-address"]})
    assert judge.kind(notebook, Difference(cell, kind, "", "", found, "")) == expected


def test_what_two_plain_runs_do_not_share_is_not_silent(tmp_path):
    def ran(text):
        message = {"msg_type": "stream", "content": {"name": "stdout", "text": text}}
        return NotebookRun([CellRun([message], {"status": "ok"})], {"values": {}, "aliases": []})

    notebook = form.Notebook(tmp_path / "x.ipy", "T", [CodeCell(1, "f()")], {})
    where = placement("gpu", 1)
    for again, expected in (("1", "silent"), ("3", "same")):
        found = judge.row(notebook, where, ran("1"), ran("2"), lambda text=again: ran(text))
        assert found["result"] == expected


@pytest.mark.processes
@pytest.mark.parametrize("pattern", ["alternating", "interrupted"])
def test_quick_notebooks_placed_are_the_same(pattern, tmp_path, capsys):
    table = tmp_path / "table.json"
    status = main([*QUICK, "--placements", pattern, "--json", str(table)])
    said = capsys.readouterr().out
    assert status == 0, said
    assert {row["result"] for row in json.loads(table.read_text())} == {"same"}, said
