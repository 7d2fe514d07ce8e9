"""Which roots of a walk show the same memory: arrays and their views share it, not an object."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease.transfer.arrays import buffer_owner, is_owner, root_of, span_of
from gpulease.transfer.values.groups import Group
from gpulease.transfer_next.addresses import byte_bounds

#: First and one past the last address, the root, and the array where it is a library's own (of
#: what does not travel there is no root, but its array, if any).
_Span = tuple[int, int, str, Any]


@dataclass
class Met:
    """Who shows the memory that something shows which does not travel.

    Roots are ``steady`` where that is written to in place: by an object of a framework that shows
    all of it, or by the arrays ``wholes`` (by ``id``), which must be.  Other roots are ``fragile``.
    """

    steady: set[str] = field(default_factory=set)
    wholes: set[int] = field(default_factory=set)
    fragile: set[str] = field(default_factory=set)


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

    def met(self, parts: Mapping[str, Group], shown: list[tuple[int, int, Any]]) -> Met:
        """Return who shows memory between these addresses, too; each with its array, or None."""
        out = Met()
        if not shown:
            return out
        roots = {root: part for root, part in parts.items() if not root.startswith("need:")}
        spans: list[_Span] = [(low, high, "", array) for low, high, array in shown if low < high]
        for run in _runs(spans + self._spans(roots)):
            found = {root for _, _, root, _ in run if root}
            arrays = [array for _, _, root, array in run if not root]
            if not arrays or not found:
                continue
            all_of_it = run[0][0], max(high for _, high, _, _ in run)
            if any(all_of_it in roots[root].spans for root in found):
                out.steady |= found
                continue
            there = [other for root in found for other in roots[root].arrays]
            viewed = _of_one_root(arrays, there)
            if viewed:
                out.wholes.update(viewed)
                out.steady |= found
            else:
                out.fragile |= found
        return out

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


def _of_one_root(arrays: list[Any], there: list[Any]) -> list[int]:
    """Return one array, by ``id``, of those that are ``there`` for each that is a view with it.

    Nothing where one has none.  Written to in place, it is what the view shows.
    """
    by_root = {id(root_of(array)): id(array) for array in there}
    found = [None if each is None else by_root.get(id(root_of(each))) for each in arrays]
    return [] if None in found else [key for key in found if key is not None]


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
