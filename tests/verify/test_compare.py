"""Placements and differences: pure, from runs that never were."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.verify.compare import Steady, compare, steady
from gpulease.verify.notebook import CodeCell
from gpulease.verify.placements import PATTERNS, placement, placements
from gpulease.verify.runner import CellRun, NotebookRun

CELLS = [CodeCell(2, "x = 1"), CodeCell(4, "print(x)"), CodeCell(5, "y = x")]


def text(said):
    return {"msg_type": "stream", "content": {"name": "stdout", "text": said}}


def ran(*said, values=None, aliases=(), failed=None, stayed=None):
    cells = [CellRun([text(each)], {"status": "ok"}) for each in said]
    if failed is not None:
        cells[failed] = CellRun([], {"status": "error", "ename": "GPULeaseError", "evalue": "no"})
    picture = {"values": values or {}, "aliases": [list(a) for a in aliases]}
    return NotebookRun(cells, picture, stayed or {})


def kinds(plain, placed, what=None):
    return [(f.cell, f.kind, f.name) for f in compare(CELLS, plain, placed, what or Steady())]


def test_every_pattern_places_every_cell_and_a_seed_repeats_it():
    for pattern in PATTERNS:
        where = placement(pattern, 7)
        assert len(where.away) == len(where.between) == 7
    assert placement("random", 50, 1) == placement("random", 50, 1)
    assert placement("random", 50, 1).away != placement("random", 50, 2).away
    assert placement("alternating", 3).away == (True, False, True)
    assert placement("alternating-home", 3).away == (False, True, False)
    assert [p.name for p in placements(["gpu", "gpu"], 2)] == ["gpu"]
    for seed in range(20):
        where = placement("interrupted", 9, seed)
        ends = {what: where.away[i] for i, what in enumerate(where.between) if what}
        assert ends == {"returned": True, "killed": True}, "each while a GPU is there"
    with pytest.raises(GPULeaseError, match="no pattern"):
        placement("sideways", 3)


def test_the_same_is_the_same():
    run = ran("", "1", "", values={"x": ["int", "1", "d1"]})
    assert kinds(run, run) == []


def test_an_output_is_named_by_its_cell():
    assert kinds(ran("", "1", ""), ran("", "2", "")) == [(4, "output", "")]


def updated(*values, comm="bar"):
    return [
        {
            "msg_type": "comm_msg",
            "content": {"comm_id": comm, "data": {"method": "update", "state": {"value": value}}},
        }
        for value in values
    ]


def test_of_a_progress_bar_counts_where_it_ends():
    """How often it tells of itself depends on how fast the machine is."""
    runs = [ran("", "", "") for _ in range(4)]
    for run, values in zip(runs, [(1, 41), (41,), (1,), (41,)], strict=True):
        run.cells[1].messages[:] = updated(*values)
    assert kinds(runs[0], runs[1]) == []
    assert kinds(runs[0], runs[2]) == [(4, "output", "")]
    runs[3].cells[1].messages[:] = updated(41, comm="another")
    assert kinds(runs[1], runs[3]) == [(4, "output", "")]


def test_after_an_error_nothing_is_compared():
    found = compare(CELLS, ran("", "1", "3"), ran("", "1", "3", failed=1), Steady())
    assert [(f.cell, f.kind) for f in found] == [(4, "error")]
    assert "on one side" in found[0].advice


def test_what_differs_after_an_error_is_named_as_set_aside():
    plain = ran("", "1", "3", values={"x": ["int", "1", "a"], "y": ["int", "1", "a"]})
    other = ran("", "1", "4", values={"x": ["int", "1", "a"]}, failed=1)
    error, aside = compare(CELLS, plain, other, Steady())
    assert (error.kind, aside.kind, aside.cell) == ("error", "set aside", 4)
    assert aside.found == "cell 5; variable y"
    shaky = Steady(cells=frozenset({2}), names=frozenset({"y"}))
    other.picture["values"]["y"] = ["int", "2", "b"]
    assert len(compare(CELLS, plain, other, shaky)) == 1, "it differs in a plain kernel, too"


def test_values_types_and_what_is_missing():
    plain = ran("", "", "", values={"x": ["int", "1", "a"], "y": ["int", "1", "a"]})
    other = ran("", "", "", values={"x": ["int", "2", "b"], "y": ["float", "1", "a"]})
    assert kinds(plain, other) == [(2, "value", "x"), (5, "type", "y")]
    gone = ran("", "", "", values={"x": ["int", "1", "a"]})
    assert kinds(plain, gone) == [(5, "missing", "y")]
    gone.stayed["y"] = "a generator"
    assert kinds(plain, gone) == [(5, "stays", "y")]


def test_an_alias_that_is_lost_and_one_that_is_new():
    plain, other = ran("", "", "", aliases=[["x", "y"]]), ran("", "", "")
    assert kinds(plain, other) == kinds(other, plain) == [(2, "alias", "x")]


def test_what_differs_from_run_to_run_is_set_aside():
    one = ran("", "0.3", "", values={"x": ["float", "0.3", "a"]})
    two = ran("", "0.7", "", values={"x": ["float", "0.7", "b"]})
    what = steady(CELLS, one, two)
    assert [(r.cell, r.name) for r in what.remarks] == [(4, ""), (2, "x")]
    assert kinds(one, two, what) == []


def test_times_are_not_compared():
    assert kinds(ran("", "took 3.1 s", ""), ran("", "took 12 ms", "")) == []


def test_the_line_of_a_warning_is_not_compared():
    told = '  File "/tmp/ipykernel_7/{n}.py", line {n}, in f'
    for form in ("/tmp/ipykernel_7/{n}.py:{n}: UserWarning: x", told, "<>:{n}: SyntaxWarning: x"):
        one, two = (form.format(n=n) for n in (1, 2))
        assert kinds(ran("", one, ""), ran("", two, "")) == []
    one, two = (f"/tmp/ipykernel_7/{n}.py:{n}: UserWarning: x" for n in (1, 2))
    assert kinds(ran("", one, ""), ran("", two.replace("x", "z"), "")) == [(4, "output", "")]


def warned(said):
    run = ran("", "1", "")
    run.cells[1].messages.append(
        {"msg_type": "stream", "content": {"name": "stderr", "text": said}}
    )
    return run


def test_a_warning_given_once_in_a_process_is_not_compared():
    once = (
        "/tmp/ipykernel_12/345.py:1: UserWarning: Converting a tensor\nmay lead elsewhere. "
        "(Triggered internally at /a/b/methods.cpp:820.)\n  print(float(x))\n"
    )
    other = "/tmp/ipykernel_12/345.py:2: UserWarning: another one\n  f()\n"
    assert kinds(ran("", "1", ""), warned(once)) == []
    assert kinds(warned(other), warned(once + other)) == []
    for text_of_one in (other, "all wrong (Triggered internally at x)\n", once + other):
        assert kinds(ran("", "1", ""), warned(text_of_one)) == [(4, "output", "")]


def test_a_cell_is_placed_by_its_first_line_and_loses_its_own():
    cell = CodeCell(1, "%%gpu --wait 5m\nx = 1\n%gpu keep")
    assert "%gpu" not in cell.plain.replace("# %%gpu", "")
    assert cell.away.startswith("%%gpu\n")
    assert CodeCell(1, "%%time\nx").away == "%%gpu\n%%time\nx"


def test_a_warning_of_an_earlier_cell_may_come_again_from_the_other_side():
    again, other = "lib.py:1: FutureWarning: it is old\n", "lib.py:2: FutureWarning: so is this\n"
    plain, placed = ran("", "1", ""), ran("", "1", "")
    for run, cell, text in ((plain, 0, again), (placed, 0, again), (placed, 1, again)):
        run.cells[cell].messages.append(
            {"msg_type": "stream", "content": {"name": "stderr", "text": text}}
        )
    assert kinds(plain, placed) == []
    assert kinds(ran("", "1", ""), warned(again)) == [(4, "output", "")]
    placed.cells[1].messages[-1]["content"]["text"] = again + other
    assert kinds(plain, placed) == [(4, "output", "")]
