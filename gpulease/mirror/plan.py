"""Which file goes where: three manifests in, what is to be done out.

Pure.  ``base`` is what both sides had when they last agreed.  A version that one side alone changed
goes to the other; where both changed, home's keeps its name and the GPU's steps aside under a name
of its own, so that no version is ever lost.  Every step says which version it expects to find, and
is not done where another one stands by then: the next pass looks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpulease.mirror.entries import (
    BUSY,
    DIRECTORY,
    UNREADABLE,
    Entry,
    Kind,
    Manifest,
    parents,
    same,
)


@dataclass(frozen=True)
class Step:
    """One change of one side: ``then`` is to stand at ``path`` where ``expected`` stands now."""

    path: str
    expected: Entry | None
    then: Entry | None


@dataclass(frozen=True)
class Conflict:
    """Both sides changed a path.

    ``kept_as``: the name that the GPU's version continues under; "" where a change won over a
    deletion and nothing had to step aside.  ``deleted``: the side that had deleted it.
    """

    path: str
    kept_as: str = ""
    deleted: str = ""  # "", "home", "gpu"


@dataclass
class Plan:
    """What one pass does.

    Attributes:
        home: steps of home's side.
        away: steps of the mirror's side.
        agreed: paths at which both sides hold the same already; None: nothing any more.
        aside: paths of the mirror that take another name first; then a new plan is made.
        conflicts: what people must be told.
    """

    home: list[Step] = field(default_factory=list)
    away: list[Step] = field(default_factory=list)
    agreed: dict[str, Entry | None] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.home or self.away or self.aside)


def plan(base: Mapping[str, Entry], home: Manifest, away: Manifest) -> Plan:
    """Return what brings both sides together.

    Args:
        base: what both had when they last agreed.
        home: what home has.
        away: what the mirror has.
    """
    made = _Planner(base, home, away)
    unseen = {path for side in (home, away) for path, entry in side.items() if _unseen(entry)}
    for path in sorted(_unsettled(base, home, away)):
        # What was not looked into is neither deleted nor new: it is not known.
        if unseen and not unseen.isdisjoint(parents(path)):
            continue
        if path in unseen and _may_be_moving(path, base.get(path), home, away):
            continue
        made.decide(path)
    made.keep_parents()
    return made.plan()


def aside_name(path: str, taken: Iterable[Mapping[str, Entry]]) -> str:
    """Return a free name beside ``path`` for the GPU's version of it."""
    directory, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    manifests = list(taken)
    number = 1
    while True:
        which = "from GPU" if number == 1 else f"from GPU {number}"
        found = f"{directory}{slash}{stem} ({which}){dot}{suffix}"
        if not any(found in manifest for manifest in manifests):
            return found
        number += 1


def _unsettled(base: Mapping[str, Entry], home: Manifest, away: Manifest) -> set[str]:
    """Return the paths at which the two sides and ``base`` are not one; of many, these are few."""
    paths = {path for side in (home, away) for path in side.keys() - base.keys()}
    for path, known in base.items():
        if not (known.same(home.get(path)) and known.same(away.get(path))):
            paths.add(path)
    return paths


class _Planner:
    def __init__(self, base: Mapping[str, Entry], home: Manifest, away: Manifest) -> None:
        self._base, self._home, self._away = base, home, away
        self._then: dict[str, Entry | None] = {}  # what shall stand at a path in the end
        self._aside: dict[str, Conflict] = {}
        self._won: dict[str, Conflict] = {}  # changes that won over a deletion

    def decide(self, path: str) -> None:
        """Say what shall stand at ``path`` in the end."""
        base, home, away = (m.get(path) for m in (self._base, self._home, self._away))
        if same(home, away) or same(away, base):
            self._then[path] = home
        elif same(home, base):
            self._then[path] = away
        elif away is None:
            self._then[path] = home
            self._win(path, home, "gpu")
        elif home is None:
            self._then[path] = away
            self._win(path, away, "home")
        else:
            self._step_aside(path)

    def keep_parents(self) -> None:
        """Whatever shall stand somewhere needs the directories that it lies in, on both sides."""
        for path in [path for path, then in self._then.items() if then is not None]:
            for parent in parents(path):
                then = self._then.get(parent, self._base.get(parent))
                if parent in self._aside:
                    break
                if then is None:
                    self._then[parent] = DIRECTORY
                elif then.kind is not Kind.DIRECTORY:
                    # A file is to stand where the other side has a directory with news in it.
                    self._step_aside(parent)

    def plan(self) -> Plan:
        """Return the steps that lead there."""
        outermost = {path for path in self._aside if not self._is_aside(path)}
        result = Plan(aside={path: self._aside[path].kept_as for path in sorted(outermost)})
        result.conflicts = [self._aside[path] for path in sorted(outermost)]
        for path, then in self._then.items():
            if path in outermost or self._is_aside(path):
                continue
            if path in self._won:
                result.conflicts.append(self._won[path])
            home, away = self._home.get(path), self._away.get(path)
            if same(home, away):
                result.agreed[path] = home
            elif then is away and not _left(away):
                result.home.append(Step(path, home, then))
            elif then is home and not (_left(home) and away is None):
                # What home cannot send is absent in the mirror, never old.
                result.away.append(Step(path, away, None if _left(home) else then))
            elif then is DIRECTORY:
                side, stands = (result.away, away) if away is None else (result.home, home)
                side.append(Step(path, stands, then))
        return result

    def _is_aside(self, path: str) -> bool:
        return any(parent in self._aside for parent in parents(path))

    def _win(self, path: str, changed: Entry | None, deleted: str) -> None:
        if path in self._base and changed is not None and changed.kind in (Kind.FILE, Kind.LINK):
            self._won[path] = Conflict(path, deleted=deleted)

    def _step_aside(self, path: str) -> None:
        if path not in self._aside:
            taken = {conflict.kept_as: DIRECTORY for conflict in self._aside.values()}
            kept = aside_name(path, (self._home, self._away, taken))
            self._aside[path] = Conflict(path, kept_as=kept)


def _unseen(found: Entry) -> bool:
    return found.kind is Kind.LEFT_OUT and found.mark in (BUSY, UNREADABLE)


def _may_be_moving(path: str, known: Entry | None, home: Manifest, away: Manifest) -> bool:
    if known is not None and known.kind is Kind.DIRECTORY:
        return True
    marks = [side[path].mark for side in (home, away) if path in side]
    return BUSY in marks


def _left(found: Entry | None) -> bool:
    return found is not None and found.kind is Kind.LEFT_OUT
