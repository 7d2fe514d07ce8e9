"""What a piece of code is about to reach, as it is before it runs.

A snapshot holds no value: names with the ``id`` of what they are bound to, digests of what the code
can reach, and the states of the generators, which it puts back.  State inside installed modules is
not looked at.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpulease.transfer.api import TransferSettings
from gpulease.transfer.libraries import library
from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.values.names.analysis import cell_use

from .groups import AbandonedError, Check, Group, Survey
from .side import Hidden, Side

Digests = dict[tuple[str, ...], bytes]
#: What an object costs beside a byte, and what a slice of a walk does before its objects are known.
_AN_OBJECT = 400
_A_SLICE = 100_000


class Budget:
    """What looking may cost, in bytes: it is counted, so it is the same on a busy machine."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, cost: int) -> None:
        """Raises AbandonedError where no more is left."""
        self.left -= cost
        if self.left < 0:
            raise AbandonedError

    def check(self) -> None:
        """Spend what a part of a walk costs."""
        self.spend(_A_SLICE)


@dataclass(frozen=True)
class Snapshot:
    """One look; ``Snapshots.changed`` compares with it."""

    bound: dict[str, int]
    names: tuple[str, ...]
    digests: Digests
    put_back: Callable[[], None]


class Snapshots:
    """Takes and compares snapshots of one namespace; knows no other side."""

    def __init__(self, namespace: dict[str, Any], hidden: Hidden) -> None:
        self._ns = namespace
        self._side = Side("s", namespace, hidden, TransferSettings())

    def take(self, source: str, budget: Budget) -> Snapshot | None:
        """Return what ``source`` may reach, as it is; None where that cannot be, or costs more."""
        use = cell_use(source)
        names = self._side.names() if use.unbounded else sorted(use.touched & self._ns.keys())
        try:
            survey = self._reached(names, budget.check)
            budget.spend(sum(map(_cost, survey.groups)))
            digests = self._digests(survey)
        except (AbandonedError, RefusedError):
            return None
        reached = tuple(sorted({name for group in survey.groups for name in group.names}))
        return Snapshot(self._bound(), reached, digests, _generators())

    def changed(self, before: Snapshot) -> str:
        """Return what is not as it was, as words after "it", "" for nothing."""
        now = self._bound()
        moved = [
            n for n in sorted(before.bound.keys() | now.keys()) if before.bound.get(n) != now.get(n)
        ]
        if moved:
            return f"had bound {moved[0]}"
        try:
            survey = self._side.survey(before.names)
            found = self._digests(survey)
        except RefusedError:
            return "had changed a variable"
        for group in survey.groups:
            if found[group.roots] != before.digests.get(group.roots):
                return f"had changed {(group.names or ['a function or class'])[0]}"
        return ""

    def _reached(self, names: list[str], check: Check) -> Survey:
        """Walk from these names and the globals that their functions read, to a fixed point."""
        while True:
            survey = self._side.survey(names, check)
            if any(group.unbounded for group in survey.groups):
                return self._side.survey(None, check)
            roots = self._side.closure(names, survey, reads=True)
            wanted = {root[2:] for root in roots if root.startswith("n:")} & self._ns.keys()
            if wanted <= set(names):
                return survey
            names = sorted(wanted | set(names))

    def _digests(self, survey: Survey) -> Digests:
        return {group.roots: self._side.pack(group, survey).digest for group in survey.groups}

    def _bound(self) -> dict[str, int]:
        return {name: id(self._ns[name]) for name in self._side.names()}


def _cost(group: Group) -> int:
    return group.nbytes + _AN_OBJECT * group.objects


def _generators() -> Callable[[], None]:
    """Return what puts every generator of this process back to where it is now."""
    put: list[Callable[[], object]] = []
    state = random.getstate()
    put.append(lambda: random.setstate(state))
    numpy, torch = library("numpy"), library("torch")
    if numpy is not None:
        drawn = numpy.random.get_state()
        put.append(lambda: numpy.random.set_state(drawn))
    if torch is not None:
        drawn_by_torch = torch.get_rng_state()
        put.append(lambda: torch.set_rng_state(drawn_by_torch))

    def put_back() -> None:
        for each in put:
            each()

    return put_back
