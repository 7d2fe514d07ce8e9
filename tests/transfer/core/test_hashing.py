"""Digests: pieces make no difference, and every byte counts."""

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from gpulease.transfer import pieces
from gpulease.transfer.pieces import CHUNK, buffer_digest, combine


def whole(data):
    return xxhash.xxh3_128(bytes(data)).digest()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7])
def test_pieces_give_the_digest_of_the_whole(size):
    data = bytes(range(256)) * (size // 256 + 1)
    assert buffer_digest(memoryview(data)[:size]) == whole(data[:size])


@pytest.mark.parametrize("at", [0, CHUNK - 1, CHUNK, 2 * CHUNK])
def test_every_byte_counts(at):
    data = bytearray(2 * CHUNK + 1)
    before = buffer_digest(memoryview(data))
    data[at] = 1
    assert buffer_digest(memoryview(data)) != before


@given(st.binary(max_size=40), st.integers(1, 9))
def test_any_size_of_piece(data, piece):
    kept = pieces.CHUNK
    pieces.CHUNK = piece
    try:
        assert buffer_digest(memoryview(data)) == whole(data)
    finally:
        pieces.CHUNK = kept


def test_items_of_more_than_a_byte():
    import numpy as np

    array = np.arange(CHUNK // 4 + 11, dtype="i8")
    assert buffer_digest(memoryview(array)) == whole(array.tobytes())


def test_strides_are_hashed_by_content():
    import numpy as np

    array = np.arange(40).reshape(5, 8)
    for view in (array[:, ::2], array.T, array[::-1], array[1:1]):
        assert buffer_digest(memoryview(view)) == whole(view.tobytes())


def test_between_pieces_it_can_be_given_up():
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        buffer_digest(memoryview(bytes(5 * CHUNK)), check)
    assert len(calls) == 2


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_a_sequence_is_more_than_its_joined_bytes(one, other):
    assert (combine(one) == combine(other)) == (one == other)
