"""Linked structures: a chain of thousands of objects travels as any other value."""

import sys
import threading

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.values.names.deep import with_room

CHAIN = (
    "class Node:\n    def __init__(self, value): self.value, self.next = value, None\n"
    "def chain(n):\n    first = last = Node(0)\n    for i in range(1, n):\n"
    "        last.next = Node(i); last = last.next\n    return first\n"
    "def length(node):\n    n = 0\n    while node is not None: n, node = n + 1, node.next\n"
    "    return n\n"
)


@pytest.mark.parametrize("count", [2_000, 8_000])
def test_a_linked_list_travels_both_ways(pair, count):
    limit = sys.getrecursionlimit()
    pair.home(CHAIN + f"head = chain({count})\nsecond = head.next")
    pair.gpu(f"assert length(head) == {count} and head.next is second\nsecond.value = 'new'")
    pair.home("assert head.next.value == 'new' and head.next is second")
    pair.home(f"assert length(head) == {count}")
    pair.gpu(f"tail = chain({count})")
    pair.home(f"assert length(tail) == {count}")
    assert sys.getrecursionlimit() == limit


def test_containers_in_containers(pair):
    pair.home("deep = []\nfor _ in range(5_000): deep = [deep]")
    pair.gpu("n, at = 0, deep\nwhile at: n, at = n + 1, at[0]")
    pair.home("assert n == 5_000")


def test_beyond_that_it_is_refused_with_a_way_out(pair):
    pair.home(CHAIN + "head = chain(60_000)\nn = 1")
    pair.gpu("n += 1")
    with pytest.raises(
        GPULeaseError, match=r"head cannot travel.*nested too deeply.*a list of them"
    ):
        pair.gpu("head")
    pair.home("assert n == 2 and length(head) == 60_000")


def test_a_reduction_without_end_is_refused(pair):
    pair.home(
        "import pickle\nclass Odd:\n    def __getstate__(self): return pickle.dumps(self)\n"
        "odd = Odd()"
    )
    with pytest.raises(GPULeaseError, match="odd cannot travel"):
        pair.gpu("odd")
    pair.home("assert odd is not None")


def test_room_is_given_back_whatever_happens():
    limit, interval, stack = (
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        threading.stack_size(),
    )

    def down(n):
        return n if n == 0 else 1 + down(n - 1)

    assert with_room(lambda: down(20_000)) == 20_000
    with pytest.raises(RecursionError):
        with_room(lambda: down(10**6))
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 / 0)
    assert sys.getrecursionlimit() == limit
    assert sys.getswitchinterval() == interval
    assert threading.stack_size() == stack
