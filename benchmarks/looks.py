"""One side looks at a notebook, packs what changed, and hands it to another side of the process.

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
from gpulease.transfer.side import Side

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
    """Return processor seconds of each look, in order."""
    source = SOURCE.format(count=max(1, round(25_000 * scale)))
    space = types.ModuleType("__main__").__dict__
    hidden = frozenset(space) | {"__builtins__"}
    exec(source, space)
    side = Side("h", space, hidden)
    variants = Variants()
    for _ in range(rounds):
        side.forget_peer()
        with _timed(variants, "look and pack"):
            parcel = side.pack()
        side.acknowledge(parcel)
        del parcel
        with _timed(variants, "nothing changed"):
            assert not side.pack().components
        exec(CHANGE, space)
        with _timed(variants, "one object changed"):
            assert len(side.pack().components) == 2
        _beside(variants, scale)
        _instances(variants, scale)
    seconds = {name: each["median"] for name, each in variants.summaries().items()}
    aims = [
        Aim("look and pack, seconds", seconds["look and pack"], 0.3),
        Aim("nothing changed, seconds", seconds["nothing changed"], 0.25),
        Aim("one of 100,000 instances, seconds", seconds["one instance"], 0.8),
        Aim("a pass beside 1 GiB, seconds", seconds["a pass beside 1 GiB"], 0.015),
    ]
    return report("looks", variants, aims)


def _sides(source: str) -> tuple[Side, Side]:
    """Return two sides in this process, of which each has what the source makes."""
    spaces = [types.ModuleType("__main__").__dict__ for _ in range(2)]
    hidden = frozenset(spaces[0]) | {"__builtins__"}
    home, there = (Side(label, space, hidden) for label, space in zip("hg", spaces, strict=True))
    exec(source, spaces[0])
    _move(home, there)
    return home, there


def _move(start: Side, to: Side, reached: list[str] | None = None) -> None:
    parcel = start.pack(reached=reached)
    to.commit(to.stage(parcel))
    start.acknowledge(parcel)


def _instances(variants: Variants, scale: float) -> None:
    """Change one of many instances on one side, and have it on the other one."""
    home, there = _sides(INSTANCES.format(count=max(1, round(100_000 * scale))))
    _move(there, home)
    home.ns["points"][0].x = -1
    with _timed(variants, "one instance"):
        _move(home, there)
    assert there.ns["points"][0].x == -1


def _beside(variants: Variants, scale: float) -> None:
    """Hand over and back where no cell reaches a large array."""
    home, there = _sides(ARRAY.format(count=max(1, round(scale * 2**27))))
    _move(there, home)
    home.ns["losses"].append(2.0)
    with _timed(variants, "a pass beside 1 GiB"):
        _move(home, there, ["losses"])
    assert there.ns["losses"] == [1.0, 2.0]


@contextmanager
def _timed(variants: Variants, name: str) -> Iterator[None]:
    gc.collect()
    started = time.process_time()
    yield
    variants.add(name, time.process_time() - started)
