"""Both transfer engines look at the same notebook, in turn and in one process.

The notebook holds 122 MB in some 170,000 objects, and small things beside.  Processor time counts:
other processes of the machine do not change it.
"""

from __future__ import annotations

import gc
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import Aim, Variants, report
from gpulease.transfer.api import TransferSettings
from gpulease.transfer.values.side import Side as FirstSide
from gpulease.transfer_next.side import Side as NextSide

SOURCE = """
import numpy as np
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
records = [{{"id": n, "name": f"row {{n}}", "tags": [n]}} for n in range({count})]
points = [Point(n, -n) for n in range({count})]
arrays = [np.arange({count} * 60.0) + n for n in range(10)]
first, head = points[0], records[:10]
losses, title = [1.0], "digits"
def scaled(values, factor=2): return [value * factor for value in values]
"""
CHANGE = "points[7].x += 1; losses.append(2.0)"


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return processor seconds of each look, by engine."""
    # Each has a notebook of its own: what one engine holds would be held for the other.
    source = SOURCE.format(count=max(1, round(25_000 * scale)))
    spaces = [types.ModuleType("__main__").__dict__ for _ in range(2)]
    hidden = frozenset(spaces[0]) | {"__builtins__"}
    for space in spaces:
        exec(source, space)
    first = FirstSide("h", spaces[0], lambda: hidden, TransferSettings())
    second = NextSide("h", spaces[1], hidden)
    variants = Variants()
    for _ in range(rounds):
        with _timed(variants, "first engine: look and pack"):
            survey = first.survey()
            for group in survey.groups:
                first.pack(group, survey)
        second.forget_peer()
        with _timed(variants, "second engine: look and pack"):
            parcel = second.pack()
        second.acknowledge(parcel)
        del parcel
        with _timed(variants, "second engine: nothing changed"):
            assert not second.pack().components
        exec(CHANGE, spaces[1])
        with _timed(variants, "second engine: one object changed"):
            assert len(second.pack().components) == 2
    seconds = {name: each["median"] for name, each in variants.summaries().items()}
    aims = [
        Aim("look and pack, seconds", seconds["second engine: look and pack"], 0.3),
        Aim("nothing changed, seconds", seconds["second engine: nothing changed"], 0.25),
    ]
    return report("engines", variants, aims)


@contextmanager
def _timed(variants: Variants, name: str) -> Iterator[None]:
    gc.collect()
    started = time.process_time()
    yield
    variants.add(name, time.process_time() - started)
