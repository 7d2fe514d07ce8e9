"""Values that do not fit at home: said when they are made, never fetched unasked, lost by name."""

import pytest

from gpulease.errors import GPULeaseError
from gpulease.kernel.status import variable_lines
from gpulease.transfer.api import Place

MARGIN = 256 * 2**20
MAKE = (
    "import numpy\nsmall = 'here'; a = numpy.ones(2_000_000, 'u1'); b = numpy.ones(8_000_000, 'u1')"
)


@pytest.fixture
def pair(new_halves):
    """Home takes values of up to 1 MB; what is parked may have 4 MB."""
    settings = {"park_limit": 4_000_000}
    made = new_halves(settings=settings, available=lambda: MARGIN + 2_000_000)
    made.attach()
    made.gpu(MAKE)
    return made


def test_the_cell_that_makes_one_names_it_with_size_and_way_out(pair):
    told = {note.names: note.sentence for note in pair.after.notes if note.reason == "too_large"}
    assert told.keys() == {("a",), ("b",)}
    first = "a (2.0 MB): Too large for your notebook's memory (1.0 MB fit)"
    assert told["a",].startswith(first)
    assert told["a",].endswith("it stays on the GPU and is parked when the lease ends.")
    assert "it is on the GPU only, and lost when the lease ends. Save it to a file" in told["b",]
    pair.gpu("a[0] = 1")
    assert not [note for note in pair.after.notes if note.reason == "too_large"], "said once"
    pair.gpu("c = numpy.ones(9_000_000, 'u1'); a = None")
    assert [n.names for n in pair.after.notes if n.reason == "too_large"] == [("c",)]


def test_a_planned_end_is_told_of_them_and_brings_the_rest(pair):
    report = pair.side.drain(60)
    assert not report.done
    found = {row.name: row.blocker for row in report.blockers}
    assert found.keys() == {"a", "b"}
    assert "lost when the lease ends" in found["b"]
    assert pair.ns["small"] == "here"
    assert "a" not in pair.ns


def test_they_are_shown_and_reading_one_says_why(pair):
    rows = {row.name: row for row in pair.side.status()}
    assert rows["b"].place is Place.GPU
    assert "GPU only" in rows["b"].blocker
    assert rows["small"].blocker == ""
    note = pair.side.explain("a")
    assert "is parked when the lease ends" in note.sentence
    assert pair.home("len(b), repr(b)") == (
        8_000_000, "<ndarray (8000000,), uint8: the values are on the GPU>",
    )  # fmt: skip
    with pytest.raises(GPULeaseError) as caught:
        pair.home("b.sum()")
    assert caught.value.reason == "too_big_for_home"
    pair.home("small")


def test_what_was_lost_is_lost_by_name(pair):
    pair.side.drain(60)
    notes = pair.side.disconnect(died=False, lost=["b"])
    assert {name for note in notes if note.reason == "lost" for name in note.names} == {"b"}
    with pytest.raises(GPULeaseError, match="The value that cell"):
        pair.home("b")


def test_where_there_is_room_nothing_is_said(new_halves):
    pair = new_halves()
    pair.attach()
    pair.gpu(MAKE)
    assert not [note for note in pair.after.notes if note.reason == "too_large"]
    assert pair.side.drain(60).done
    assert len(pair.ns["b"]) == 8_000_000


def test_what_is_away_says_how_old_homes_last_whole_value_is(new_halves):
    pair = new_halves(settings={"small_bytes": -1})
    pair.attach()
    older = lambda: {row.name: row.older for row in pair.side.status()}  # noqa: E731
    pair.gpu("model = [1]")
    assert older() == {"model": None}
    pair.home("model")
    pair.gpu("model.append(2)")
    pair.gpu("model.append(3)")
    assert older() == {"model": 1}
    assert "last whole value is of after cell [1]" in "\n".join(variable_lines(pair.side.status()))
    pair.home("model")
    assert older() == {"model": None}
