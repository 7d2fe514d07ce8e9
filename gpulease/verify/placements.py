"""Where a notebook's cells run: the patterns that a notebook is tried in.

Pure.  What holds in each of them holds in every other that a student may think of, or the tests
that play thousands of random programs would have found it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
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
}


@dataclass(frozen=True)
class Placement:
    """One way to place a notebook.

    Attributes:
        name: of its pattern, with the seed where there is one.
        away: for each cell, whether it runs on the GPU.
        typed_after: cells are typed as they are, after ``%gpu on`` or ``%gpu auto``; ``away`` says
            nothing then.
        between: what happens to the GPU between two cells.
    """

    name: str
    away: tuple[bool, ...]
    typed_after: Literal["", "on", "auto"] = ""
    between: Between = ""


def placement(  # noqa: PLR0911 - one a pattern
    pattern: str, count: int, seed: int | str = SEED
) -> Placement:
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
    if pattern == "alternating":
        return Placement(pattern, tuple(i % 2 == 0 for i in range(count)))
    if pattern == "alternating-home":
        return Placement(pattern, tuple(i % 2 == 1 for i in range(count)))
    if pattern == "random":
        rng = random.Random(str(seed))
        away = tuple(rng.random() < 0.5 for _ in range(count))
        return Placement(f"random (seed {seed})", away)
    everywhere = (True,) * count
    if pattern == "sticky":
        return Placement(pattern, everywhere, "on")
    if pattern == "auto":
        return Placement(pattern, everywhere, "auto")
    if pattern == "returned":
        return Placement(pattern, everywhere, between="returned")
    if pattern == "killed":
        return Placement(pattern, everywhere, between="killed")
    return Placement(pattern, everywhere)


def placements(patterns: Sequence[str], count: int, seed: int | str = SEED) -> list[Placement]:
    """Return the placements of these patterns, of all where none is named."""
    return [placement(pattern, count, seed) for pattern in dict.fromkeys(patterns or PATTERNS)]
