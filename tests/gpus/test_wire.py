"""The kubelet's messages are read as they are encoded; what is none of them is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.gpus.agent.wire import ContainerDevice, read_allocatable, read_list
from tests.gpus.kubelet import devices, listing, part, varint

names = st.text(min_size=1, max_size=40)
plain = st.builds(ContainerDevice, names, names, names, names, names)
claimed = st.builds(ContainerDevice, names, names, names, st.just(""), names, names, names)


def key(held: ContainerDevice) -> tuple[str, ...]:
    return (
        held.namespace, held.pod, held.container, held.driver, held.resource, held.pool, held.device
    )  # fmt: skip


@given(st.lists(plain | claimed, max_size=8))
def test_what_a_kubelet_encodes_is_what_is_read(held: list[ContainerDevice]) -> None:
    assert sorted(read_list(listing(held)), key=key) == sorted(held, key=key)


@given(st.lists(st.tuples(names, st.lists(names, max_size=4)), max_size=4))
def test_what_may_be_given_out_is_read(offered: list[tuple[str, list[str]]]) -> None:
    data = b"".join(part(1, devices(resource, *found)) for resource, found in offered)
    assert read_allocatable(data) == [
        (resource, each) for resource, all_ in offered for each in all_
    ]


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_read_and_never_more(data: bytes) -> None:
    try:
        read_list(data)
    except ValueError:
        return


@given(st.lists(plain, min_size=1, max_size=4), st.data())
def test_a_message_that_is_cut_off_is_refused_or_is_a_whole_part(
    held: list[ContainerDevice], data: st.DataObject
) -> None:
    whole = listing(held)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = read_list(cut)
    except ValueError:
        return
    assert len(found) <= len(held)


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        read_list(b"\x80" * 20)


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_an_unknown_kind_of_field_is_refused(kind: int) -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        read_list(varint(1 << 3 | kind))


def test_fixed_width_fields_are_passed_over() -> None:
    extra = (
        varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4) + varint(11 << 3) + b"\x05"
    )
    held = ContainerDevice("n", "p", "c", "r", "d")
    assert read_list(extra + listing([held]) + extra) == [held]
