"""Linked structures: a chain of thousands of objects travels as any other value."""

import sys

CHAIN = (
    "class Node:\n    def __init__(self, value): self.value, self.next = value, None\n"
    "def chain(n):\n    first = last = Node(0)\n    for i in range(1, n):\n"
    "        last.next = Node(i); last = last.next\n    return first\n"
    "def length(node):\n    n = 0\n    while node is not None: n, node = n + 1, node.next\n"
    "    return n\n"
)


def test_a_linked_list_travels_both_ways(pair):
    count = 4_000
    limit = sys.getrecursionlimit()
    pair.home(CHAIN + f"head = chain({count})\nsecond = head.next")
    pair.gpu(f"assert length(head) == {count} and head.next is second\nsecond.value = 'new'")
    pair.home("assert head.next.value == 'new' and head.next is second")
    pair.home(f"assert length(head) == {count}")
    pair.gpu(f"tail = chain({count})")
    pair.home(f"assert length(tail) == {count}")
    assert sys.getrecursionlimit() == limit


def test_containers_in_containers(pair):
    pair.home("deep = []\nfor _ in range(20_000): deep = [deep]")
    pair.gpu("n, at = 0, deep\nwhile at: n, at = n + 1, at[0]")
    pair.home("assert n == 20_000")
