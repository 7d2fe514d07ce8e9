"""Both transfer engines look at the same notebook, in turn and in one process.

The notebook holds 122 MB in some 170,000 objects, and small things beside.  Two more have one large
array, and many instances of a class.  Processor time counts: other processes of the machine do not
change it.
"""

from __future__ import annotations

import gc
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import Aim, Variants, report
from gpulease.transfer.values.side import Side as FirstSide
from gpulease.transfer_next.api import TransferSettings
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
INSTANCES = """
class Point:
    def __init__(self, x):
        self.x, self.name = x, f"point {{x}}"
points = [Point(n) for n in range({count})]
"""
ARRAY = "import numpy as np; array, losses = np.zeros({count}), [1.0]"


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
        _beside(variants, scale)
        _instances(variants, scale)
    seconds = {name: each["median"] for name, each in variants.summaries().items()}
    aims = [
        Aim("look and pack, seconds", seconds["second engine: look and pack"], 0.3),
        Aim("nothing changed, seconds", seconds["second engine: nothing changed"], 0.25),
        Aim("one of 100,000 instances, seconds", seconds["second engine: one instance"], 0.8),
        Aim("a pass beside 1 GiB, seconds", seconds["second engine: a pass beside 1 GiB"], 0.015),
    ]
    return report("engines", variants, aims)


def _sides(source: str) -> tuple[NextSide, NextSide]:
    """Return two sides in this process, of which each has what the source makes."""
    spaces = [types.ModuleType("__main__").__dict__ for _ in range(2)]
    hidden = frozenset(spaces[0]) | {"__builtins__"}
    home, there = (
        NextSide(label, space, hidden) for label, space in zip("hg", spaces, strict=True)
    )
    exec(source, spaces[0])
    _move(home, there)
    return home, there


def _move(start: NextSide, to: NextSide, reached: list[str] | None = None) -> None:
    parcel = start.pack(reached=reached)
    to.commit(to.stage(parcel))
    start.acknowledge(parcel)


def _instances(variants: Variants, scale: float) -> None:
    """Change one of many instances on one side, and have it on the other one."""
    home, there = _sides(INSTANCES.format(count=max(1, round(100_000 * scale))))
    _move(there, home)
    home.ns["points"][0].x = -1
    with _timed(variants, "second engine: one instance"):
        _move(home, there)
    assert there.ns["points"][0].x == -1


def _beside(variants: Variants, scale: float) -> None:
    """Hand over and back where no cell reaches a large array."""
    home, there = _sides(ARRAY.format(count=max(1, round(scale * 2**27))))
    _move(there, home)
    home.ns["losses"].append(2.0)
    with _timed(variants, "second engine: a pass beside 1 GiB"):
        _move(home, there, ["losses"])
    assert there.ns["losses"] == [1.0, 2.0]


@contextmanager
def _timed(variants: Variants, name: str) -> Iterator[None]:
    gc.collect()
    started = time.process_time()
    yield
    variants.add(name, time.process_time() - started)
