"""Where a notebook's cells run: the patterns that a notebook is tried in.

Pure.  What holds in each of them holds in every other that a student may think of, or the tests
that play thousands of random programs would have found it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpulease.errors import GPULeaseError

#: Printed with a failure; another one gives another random placement.
SEED: Final = 1122
Between = Literal["", "returned", "killed"]

#: What ``--pattern`` takes.
PATTERNS: Final = {
    "gpu": "every cell on the GPU",
    "alternating": "every second cell on the GPU, from the first",
    "alternating-home": "every second cell on the GPU, from the second",
    "random": "each cell where a seeded coin says",
    "sticky": "as a student types it after %gpu on",
    "auto": "as a student types it after %gpu auto",
    "returned": "every cell on a GPU that is given back after it",
    "killed": "every cell on a GPU whose companion is killed after it",
    "interrupted": "random, and the GPU is given back after one cell and killed after another",
}
#: Patterns that a seed draws.
_DRAWN: Final = ("random", "interrupted")
_TYPED: Final[dict[str, Literal["on", "auto"]]] = {"sticky": "on", "auto": "auto"}
_ENDS: Final[tuple[Between, ...]] = ("returned", "killed")


@dataclass(frozen=True)
class Placement:
    """One way to place a notebook.

    Attributes:
        name: of its pattern, with the seed where there is one.
        away: for each cell, whether it runs on the GPU.
        between: what happens to the GPU after each cell.
        typed_after: cells are typed as they are, after ``%gpu on`` or ``%gpu auto``; ``away`` says
            nothing then.
    """

    name: str
    away: tuple[bool, ...]
    between: tuple[Between, ...]
    typed_after: Literal["", "on", "auto"] = ""


def placement(pattern: str, count: int, seed: int | str = SEED) -> Placement:
    """Return how ``count`` cells are placed.

    Raises:
        GPULeaseError: ``bad_option`` for a pattern that is none.
    """
    if pattern not in PATTERNS:
        raise GPULeaseError(
            "bad_option",
            f"{pattern!r} is no pattern.",
            next_step=f"Patterns are: {', '.join(PATTERNS)}.",
        )
    name = f"{pattern} (seed {seed})" if pattern in _DRAWN else pattern
    away = tuple(_away(pattern, count, random.Random(str(seed))))
    return Placement(name, away, _between(pattern, away, seed), _TYPED.get(pattern, ""))


def _away(pattern: str, count: int, rng: random.Random) -> Iterator[bool]:
    for index in range(count):
        if pattern in _DRAWN:
            yield rng.random() < 0.5
        elif pattern.startswith("alternating"):
            yield (index % 2 == 0) == (pattern == "alternating")
        else:
            yield True


def _between(pattern: str, away: Sequence[bool], seed: int | str) -> tuple[Between, ...]:
    for end in _ENDS:
        if pattern == end:
            return (end,) * len(away)
    found: list[Between] = [""] * len(away)
    if pattern == "interrupted":
        there = [index for index, gone in enumerate(away) if gone]
        chosen = random.Random(f"{seed} between").sample(there, min(2, len(there)))
        for index, what in zip(chosen, _ENDS, strict=False):
            found[index] = what
    return tuple(found)


def placements(patterns: Sequence[str], count: int, seed: int | str = SEED) -> list[Placement]:
    """Return the placements of these patterns, of all where none is named."""
    return [placement(pattern, count, seed) for pattern in dict.fromkeys(patterns or PATTERNS)]
