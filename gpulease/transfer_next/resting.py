"""Large components that no cell could reach since both sides had them: they are not looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from .survey import Component, Survey

#: A component that is not larger is looked at always.  Counted, never timed.
OBJECTS = 10_000
BYTES = 16 << 20


@dataclass(frozen=True)
class Resting:
    """What is known of such a component from the last look."""

    roots: frozenset[str]
    digest: bytes
    pieces: dict[str, bytes]
    classes: frozenset[str]
    reads: set[str] | None
    size: int

    def component(self) -> Component:
        """Return it as a component that has met nothing."""
        found = Component(self.roots, digest=self.digest, pieces=self.pieces, classes=self.classes)
        found.rests, found.known_reads, found.known_size = True, self.reads, self.size
        return found


def can_rest(component: Component, held: Collection[object]) -> bool:
    """Say whether names alone lead to a component, which is large."""
    if component.error is not None or held or any(root[0] != "n" for root in component.roots):
        return False
    return len(component.objects) > OBJECTS or component.nbytes > BYTES


def rest(component: Component) -> Resting:
    """Return what is known of a component that can rest."""
    return Resting(
        component.roots, component.digest, component.pieces, component.classes,
        component.reads(), component.nbytes,
    )  # fmt: skip


def closure(components: Collection[Component], roots: Iterable[str]) -> set[frozenset[str]]:
    """Return the components that these lead to: their classes, and what their code reads."""
    by_root = {root: each for each in components for root in each.roots}
    queue = list(roots)
    found: set[frozenset[str]] = set()
    while queue:
        component = by_root.get(queue.pop())
        if component is None or component.roots in found:
            continue
        found.add(component.roots)
        queue += ["c:" + oid for oid in component.classes]
        reads = component.reads()
        queue += list(by_root) if reads is None else ["n:" + name for name in reads]
    return found


def follow(names: set[str], known: set[str], rest: Mapping[str, Resting],
           look: Callable[[set[str]], Survey]) -> set[str] | None:  # fmt: skip
    """Return the names with all that code which they lead to reads; None where that is anything.

    Of the ``known`` ones those that ``rest`` are not looked at.
    """
    found, asked = set(names), set[str]()
    while fresh := (found & known) - asked:
        asked |= fresh
        components = [rest[name].component() for name in fresh & rest.keys()]
        if looked := {"n:" + name for name in asked - rest.keys()}:
            components += look(looked).components
        for component in components:
            reads = component.reads()
            if reads is None:
                return None
            found |= reads
    return found
