"""Collects the seconds of each variant, round by round, and sums them up.

Progress is written to stderr; a report describes the machine.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "gpulease",
    "ipykernel",
    "ipyparallel",
    "jupyterhub",
    "jupyter_client",
    "numpy",
    "pandas",
)


def progress(text: str) -> None:
    """Say on stderr where the run stands; stdout belongs to the result."""
    print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0..1) of the values lie, between the neighbours."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Sum up one variant's rounds; all but ``rounds`` are seconds."""
    return {
        "rounds": len(seconds),
        "median": round(statistics.median(seconds), 6),
        "p95": round(percentile(seconds, 0.95), 6),
        "best": round(min(seconds), 6),
        "worst": round(max(seconds), 6),
    }


@dataclass
class Variants:
    """The seconds of several variants, measured in turn."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, variant: str, value: float) -> None:
        """Note one round's seconds and show them."""
        self.seconds.setdefault(variant, []).append(value)
        progress(f"  {variant:<28} round {len(self.seconds[variant]):>2}: {value * 1000:9.1f} ms")

    @contextmanager
    def timed(self, variant: str) -> Iterator[None]:
        """Time a block as one round; a block that raises leaves no figure."""
        started = time.perf_counter()
        yield
        self.add(variant, time.perf_counter() - started)

    def summaries(self) -> dict[str, dict[str, float]]:
        """Return variant -> ``summary``."""
        return {name: summary(values) for name, values in self.seconds.items()}

    def times_faster(self, variant: str, peer: str) -> float:
        """Return how many times faster `variant` is than `peer`, by medians."""
        ours = statistics.median(self.seconds[variant])
        return round(statistics.median(self.seconds[peer]) / ours, 2)


@dataclass(frozen=True)
class Aim:
    """A bar the project set itself; ``most`` is in the figure's own unit."""

    name: str
    value: float
    bound: float
    at_most: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the aim with its verdict."""
        met = self.value <= self.bound if self.at_most else self.value >= self.bound
        word = "at most" if self.at_most else "at least"
        return {"aim": f"{self.name}: {word} {self.bound:g}", "measured": self.value, "met": met}


def report(name: str, variants: Variants, aims: Sequence[Aim], **more: Any) -> dict[str, Any]:
    """Return a benchmark's whole result: figures in seconds, aims with verdicts, the machine."""
    return {
        "benchmark": name,
        "unit": "seconds",
        "variants": variants.summaries(),
        "aims": [aim.as_dict() for aim in aims],
        **more,
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """Describe where this ran: figures mean little without it."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        "load_1_min": round(os.getloadavg()[0], 2),
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
    }


def installed(package: str) -> str:
    """Return a package's version, or an empty string."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
