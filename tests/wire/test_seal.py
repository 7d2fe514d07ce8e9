"""A sealed stream of messages: only what was sealed, once and in its order, can be opened."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.wire.seal import KEY, TAG, Opener, Sealer, SealError

MESSAGES = st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=40)), min_size=1)


def sealed(messages: list[tuple[bytes, bytes]], key: bytes, *, in_place: bool) -> list[bytes]:
    sealer, made = Sealer(key), []
    sealer._in_place &= in_place
    for data, about in messages:
        into = bytearray(len(data) + TAG)
        sealer.seal(data, about, memoryview(into))
        made.append(bytes(into))
    return made


def opened(opener: Opener, frame: bytes, about: bytes) -> bytes:
    into = bytearray(len(frame) - TAG)
    opener.open(frame, about, memoryview(into))
    return bytes(into)


@given(MESSAGES, st.booleans(), st.booleans())
def test_what_is_sealed_is_opened_in_its_order(messages, in_place, there) -> None:
    key = os.urandom(KEY)
    opener = Opener(key)
    opener._in_place &= there
    frames = sealed(messages, key, in_place=in_place)
    found = [opened(opener, f, about) for f, (_, about) in zip(frames, messages, strict=True)]
    assert found == [data for data, _ in messages]
    assert len(set(frames)) == len(frames), "equal messages look different"


@given(MESSAGES, st.data(), st.booleans())
def test_a_changed_bit_is_found(messages, data, in_place) -> None:
    key = os.urandom(KEY)
    opener = Opener(key)
    opener._in_place &= in_place
    frames = sealed(messages, key, in_place=True)
    at = data.draw(st.integers(0, len(frames) - 1))
    for before, (_, of_it) in list(zip(frames, messages, strict=True))[:at]:
        opened(opener, before, of_it)
    frame, about = bytearray(frames[at]), bytearray(messages[at][1])
    victim = data.draw(st.sampled_from([each for each in (frame, about) if each]))
    bit = data.draw(st.integers(0, 8 * len(victim) - 1))
    victim[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SealError):
        opened(opener, bytes(frame), bytes(about))


@given(st.lists(st.binary(max_size=20), min_size=2, max_size=6), st.data())
def test_another_order_or_the_same_again_is_found(messages, data) -> None:
    key = os.urandom(KEY)
    frames = sealed([(each, b"") for each in messages], key, in_place=True)
    order = data.draw(st.lists(st.integers(0, len(frames) - 1), min_size=1, max_size=8))
    opener = Opener(key)
    for number, at in enumerate(order):
        if at != number:
            with pytest.raises(SealError):
                opened(opener, frames[at], b"")
            break
        assert opened(opener, frames[at], b"") == messages[at]


@given(st.binary(max_size=50))
def test_another_key_opens_nothing(message) -> None:
    (frame,) = sealed([(message, b"")], os.urandom(KEY), in_place=True)
    with pytest.raises(SealError):
        opened(Opener(os.urandom(KEY)), frame, b"")
