"""What is said of values that a companion took with it."""

import pytest

from gpulease.transfer.messages import Lost


@pytest.mark.parametrize(
    ("lost", "older", "said"),
    [
        (Lost("7"), False, "The value that cell [7] gave x was lost with the companion. Run cell"),
        (
            Lost(""),
            False,
            "The newest value of x was lost with the companion. Make it again; del x",
        ),
        (Lost("7", why="no disk"), False, "gave x was parked, and is lost: no disk. Run cell [7]"),
        (Lost("", parked=True), False, "x was made on the GPU and is parked; the next"),
        (Lost("7", parked=True), False, "x was made on the GPU by cell [7] and is parked; the"),
        (Lost("7"), True, "was lost with the companion. %gpu recover x accepts the value from"),
    ],
)
def test_the_cell_is_named_where_it_is_known(lost, older, said):
    assert said in lost.note("x", older=older).sentence
