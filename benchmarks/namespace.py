"""The notebook that the `cell` benchmark works in: what a student has after some hours.

`scale` shrinks the counts for a quick look (figures then say so).
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Counts:
    """How much of each kind the namespace holds."""

    arrays: int = 60
    array_bytes: int = 16 * MIB
    frame_bytes: int = 64 * MIB
    dicts: int = 100_000
    instances: int = 20_000

    @classmethod
    def scaled(cls, scale: float) -> Counts:
        """Shrink every count by `scale` (0..1]; at least one of each stays."""
        whole = cls()
        return cls(
            arrays=max(1, round(whole.arrays * scale)),
            frame_bytes=max(MIB, round(whole.frame_bytes * scale)),
            dicts=max(1, round(whole.dicts * scale)),
            instances=max(1, round(whole.instances * scale)),
        )

    def as_dict(self) -> dict[str, int]:
        """Describe the namespace in the result."""
        return dict(vars(self))


def source(counts: Counts) -> str:
    """Return the cell that fills the namespace."""
    columns = 8
    rows = counts.frame_bytes // 8 // columns
    return f"""
import numpy as np
import pandas as pd

_generator = np.random.default_rng(7)
for _n in range({counts.arrays}):
    globals()[f"array_{{_n}}"] = _generator.standard_normal({counts.array_bytes // 8})
frame = pd.DataFrame(
    _generator.standard_normal(({rows}, {columns})), columns=[f"c{{n}}" for n in range({columns})]
)
records = [{{"id": n, "name": f"row {{n}}", "score": n / 7}} for n in range({counts.dicts})]

class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def length(self):
        return (self.x ** 2 + self.y ** 2) ** 0.5

points = [Point(n, -n) for n in range({counts.instances})]
learning_rate, epochs, title, flags = 1e-3, 12, "digits", {{"shuffle": True}}

def scaled(values, factor=learning_rate):
    return [value * factor for value in values]

def longest(items):
    return max(items, key=lambda point: point.length())
"""
