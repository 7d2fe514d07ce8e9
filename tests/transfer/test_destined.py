"""Large arrays that are new to a side arrive in the memory that they keep."""

from typing import Any

import numpy as np
import pytest

from gpulease.transfer.values import arrays_in_place
from gpulease.transfer.values.destined import become, buffers_of_arrays, memory_for

from .pair import Pair

SIZE = 2**18 + 1  # more than a MiB of eight bytes each

MAKE = {
    "C": f"a = np.arange({SIZE}.0)",
    "two dimensions": f"a = np.arange({2 * SIZE}.0).reshape(2, -1)",
    "Fortran": f"a = np.asfortranarray(np.arange({2 * SIZE}.0).reshape(2, -1))",
    "structured": f"a = np.zeros({SIZE}, 'f8,i4'); a['f1'] = np.arange({SIZE})",
    "dates": f"a = np.arange({SIZE}).astype('M8[s]')",
    "big-endian": f"a = np.arange({SIZE}).astype('>i8')",
    "a subclass": f"a = np.arange({SIZE}.0).view(np.matrix)",
    "read only": f"a = np.arange({SIZE}.0); a.flags.writeable = False",
    "twice": f"a = np.arange({SIZE}.0); b = a",
}
SHARED = {
    "with a view": f"a = np.arange({SIZE}.0); b = a[5:]",
    "in a list": f"a = np.arange({SIZE}.0); b = [a, a, a[::2]]",
    "strides": f"a = np.arange({2 * SIZE}.0)[::2]",
    "the same twice in all": f"a = np.arange({SIZE}.0); b = a[:]; c = [a, b]",
}
CONTENT = (
    "seen = type(a).__name__, a.dtype.str, a.shape, a.flags.writeable, a.tobytes()[-64:], a.sum()"
)
OWN = (
    "seen = a.strides, a.flags.owndata, a.base is None, type(a).__name__, a.dtype.str, a.tobytes()"
)


@pytest.mark.parametrize(
    ("make", "look"),
    [*((make, OWN) for make in MAKE.values()), *((make, CONTENT) for make in SHARED.values())],
    ids=[*MAKE, *SHARED],
)
def test_an_array_is_as_it_was_made_on_both_sides(pair: Pair, make: str, look: str) -> None:
    plain: dict[str, Any] = {}
    exec(f"import numpy as np\n{make}\n{look}", plain)
    pair.home(f"import numpy as np\n{make}")
    pair.gpu(look)
    pair.home("there = seen")
    assert pair.ns["there"] == plain["seen"]
    pair.gpu(make)
    pair.home(look)
    assert pair.ns["seen"] == plain["seen"]


def test_a_new_array_is_not_copied_once_more(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(shape: tuple[int, ...], *rest: Any) -> Any:
        made.append(shape[0])
        return original(shape, *rest)

    original = arrays_in_place.make
    monkeypatch.setattr(arrays_in_place, "make", make)
    pair.home("import numpy as np")
    pair.gpu(f"a = np.arange({SIZE}.0)\nsmall = np.arange(5.0)")
    pair.home("assert a[7] == 7 and small[3] == 3")
    assert SIZE not in made
    pair.gpu(f"assert a.size == {SIZE} and a[7] == 7\na[7] = 8")
    pair.home("assert a[7] == 8")


def test_memory_is_an_arrays_where_the_sender_says_so() -> None:
    sizes = [10, 5 * 2**20, 5 * 2**20, 5 * 2**20, 7]
    groups = [
        {"buffers": 3, "held": [1], "arrays": {"x": 2, "y": 1}},
        {"buffers": 2, "held": [], "arrays": {"z": 0}},
    ]
    kinds = [type(blob).__name__ for blob in memory_for({"groups": groups}, sizes)]
    assert kinds == ["bytearray", "bytearray", "ndarray", "ndarray", "bytearray"]


@pytest.mark.parametrize(
    "body", [{}, {"groups": 3}, {"groups": [{}]}, {"groups": [{"held": [], "buffers": "x"}]}]
)
def test_what_is_no_shipment_gets_byte_arrays(body: dict[str, Any]) -> None:
    assert memory_for(body, [3]) == [bytearray(3)]


def test_memory_becomes_only_what_it_has_room_for() -> None:
    f8 = np.dtype("f8")
    memory = np.empty(64, "u1")
    assert become(memory, (9,), f8, "C", np.ndarray) is None
    assert become(memory, (8,), np.dtype(object), "C", np.ndarray) is None
    assert become(memory, (8,), f8, "C", np.matrix) is None
    assert become(memory, (4, 2), f8, "F", np.ndarray) is None
    assert become(memory, (4, 2), f8, "C", np.ndarray) is memory
    assert memory.flags.owndata
    assert memory.shape == (4, 2)


def test_a_buffer_that_two_arrays_are_is_neithers() -> None:
    one, two = np.zeros(SIZE), np.zeros(SIZE)
    buffers = [each.view("u1").data for each in (one, two, two)]
    found = buffers_of_arrays({"one": one, "two": two, "view": one[1:], "no": []}, buffers)
    assert found == {"one": 0}
