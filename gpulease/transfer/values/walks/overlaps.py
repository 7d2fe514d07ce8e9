"""Which roots of a walk show the same memory: arrays and their views share it, not an object."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from gpulease.transfer.arrays import buffer_owner, byte_bounds, is_owner, span_of
from gpulease.transfer.values.groups import Group

#: First and one past the last address, the root, and the array where it is a library's own.
_Span = tuple[int, int, str, Any]


class Overlaps:
    """Gathers what a walk meets beside arrays, and says what belongs together."""

    def __init__(self) -> None:
        #: ``id`` of an object over whose memory an array is made, and the array's root.
        self.owners: list[tuple[int, str]] = []
        #: Objects with memory of their own that nobody says who shows it, and their roots.
        self.holders: list[tuple[Any, str]] = []
        #: Arrays that objects of pandas and Arrow consist of, and their roots.  What these show of
        #: each other's memory nobody can see, as long as no other array shows it.
        self.blocks: list[tuple[Any, str]] = []

    def pairs(
        self, parts: Mapping[str, Group], owner: Mapping[int, str]
    ) -> Iterator[tuple[str, str]]:
        """Yield roots that belong together; ``owner`` gives the root of each object's id.

        Enters shared blocks into the arrays of their parts.
        """
        roots = {root: part for root, part in parts.items() if not root.startswith("need:")}
        for array, root in self.blocks:
            base = None if array.dtype.hasobject else buffer_owner(array)
            if base is not None:
                self.owners.append((id(base), root))
        for number, root in self.owners:
            if number in owner:
                yield root, owner[number]
        yield from self._shown_by_frameworks(roots)
        for run in _runs(self._spans(roots)):
            if all(block is not None for _, _, _, block in run):
                continue
            for _, _, root, block in run:
                yield root, run[0][2]
                if block is not None:
                    roots[root].arrays.append(block)

    def roots_at(self, parts: Mapping[str, Group], spans: list[tuple[int, int]]) -> set[str]:
        """Return the roots of what shows memory between some of these addresses."""
        if not spans:
            return set()
        roots = {root: part for root, part in parts.items() if not root.startswith("need:")}
        shown = [(low, high, "", None) for low, high in spans if low < high]
        runs = _runs([*shown, *self._spans(roots)])
        return {
            root
            for run in runs
            if any(not r for _, _, r, _ in run)
            for _, _, root, _ in run
            if root
        }

    def _shown_by_frameworks(self, roots: Mapping[str, Group]) -> Iterator[tuple[str, str]]:
        """Yield the roots of objects whose memory a framework shows; enter these into the parts."""
        if not self.holders:
            return
        spans: list[_Span] = [(*span_of(obj), root, obj) for obj, root in self.holders if len(obj)]
        spans += [(*at, root, None) for root, part in roots.items() for at in part.spans]
        for run in _runs(spans):
            held = [(root, obj) for _, _, root, obj in run if obj is not None]
            if held and len(held) < len(run):
                yield from ((root, run[0][2]) for _, _, root, _ in run)
                for root, obj in held:
                    roots[root].shown.append(obj)

    def _spans(self, roots: Mapping[str, Group]) -> list[_Span]:
        spans: list[_Span] = []
        faces = any(part.faces for part in roots.values())
        for root, part in roots.items():
            spans += [(*byte_bounds(a), root, None) for a in part.arrays if a.size * a.itemsize]
            spans += [(low, high, root, None) for low, high in part.spans if low < high]
            if faces:  # an image does not say whose memory it shows
                spans += [(*span_of(o), root, None) for o in part.inner.values() if is_owner(o)]
        spans += [(*byte_bounds(a), root, a) for a, root in self.blocks if a.size * a.itemsize]
        return spans


def _runs(spans: list[_Span]) -> Iterator[list[_Span]]:
    """Yield two and more spans that overlap, one after the other."""
    spans.sort(key=operator.itemgetter(0, 1))
    run: list[_Span] = []
    end = -1
    for span in spans:
        if span[0] >= end:
            if len(run) > 1:
                yield run
            run = []
        run.append(span)
        end = max(end, span[1])
    if len(run) > 1:
        yield run
