"""Digests: every byte counts, however it lies in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.transfer.pieces import PIECE, buffer_digest, combine

#: So many pieces that two are hashed at a time.
SIZE = 9 * PIECE + 8


def whole(data):
    return buffer_digest(memoryview(bytes(data)))


@pytest.mark.parametrize("at", [0, PIECE, SIZE // 2, SIZE - 1])
def test_every_byte_counts(at):
    data = bytearray(SIZE)
    before = buffer_digest(memoryview(data))
    data[at] = 1
    assert buffer_digest(memoryview(data)) != before


def test_items_of_more_than_a_byte():
    import numpy as np

    array = np.arange(SIZE // 8, dtype="i8")
    assert buffer_digest(memoryview(array)) == whole(array.tobytes())


def test_strides_are_hashed_by_content():
    import numpy as np

    array = np.arange(40).reshape(5, 8)
    for view in (array[:, ::2], array.T, array[::-1], array[1:1]):
        assert buffer_digest(memoryview(view)) == whole(view.tobytes())


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_a_sequence_is_more_than_its_joined_bytes(one, other):
    assert (combine(one) == combine(other)) == (one == other)
