"""How the planner does against a fixed time-out and against a hub's culler, on invented people.

Each of the scenarios is replayed for seeds that nothing was tuned on, under the default time-outs
and under each rival.  Compared are, seed by seed, the GPU-hours held, the waits that nineteen of
twenty stay below, and the GPUs taken from somebody who wanted them within a minute.  Every replay
checks the planner's invariants at each step, and compares the time in which those who began to
wait were told to start with when they did.  ``rounds`` is the number of seeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from benchmarks.measure import Aim, Variants, progress, report
from gpulease.policy.model import Device, GPUClass, PolicyDocument, Pool, TimeOuts
from gpulease.simulate.outcome import Outcome
from gpulease.simulate.scenarios import SCENARIOS
from gpulease.simulate.trace import Trace
from gpulease.simulate.world import replay

#: The first seed; those below it are free for tuning.
FIRST = 1000
#: Weeks of each replay at scale 1.
WEEKS = 4.0
#: Minutes after which a rival takes a GPU, whoever waits; the last as a hub culls servers.
RIVALS = {"fixed 1": 1, "fixed 5": 5, "fixed 10": 10, "fixed 30": 30, "hub culler 60": 60}
OURS = "gpulease"
#: What is compared; of all of it less is better.
FIGURES = ("held_hours", "wait_p95", "false_reclaims")
#: A wait of which more than one in twenty never ended counts as so many seconds.
OPEN = 4 * 7 * 86400.0


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the benchmark's result; ``scale`` makes the replays shorter, for a look."""
    return await asyncio.to_thread(_measure, rounds, scale)


def _measure(rounds: int, scale: float) -> dict[str, Any]:
    variants = Variants()
    found: dict[str, dict[str, list[Outcome]]] = {}
    for scenario, (made, gpus) in SCENARIOS.items():
        runs = found[scenario] = {name: [] for name in (OURS, *RIVALS)}
        for seed in range(FIRST, FIRST + rounds):
            trace = made(seed, weeks=WEEKS * scale)
            for name, outcomes in runs.items():
                outcomes.append(_replayed(variants, trace, name, gpus))
            progress(f"  {scenario}, seed {seed}")
    compared = {
        scenario: {name: _compared(runs[OURS], runs[name]) for name in RIVALS}
        for scenario, runs in found.items()
    }
    means = {
        scenario: {name: _means(outcomes) for name, outcomes in runs.items()}
        for scenario, runs in found.items()
    }
    aims = [aim for name in RIVALS for aim in _aims(name, compared)]
    aims += _told([each for runs in found.values() for each in runs[OURS]])
    month = max(variants.seconds[OURS]) / scale
    aims.append(Aim("a month of a campus (processor s)", round(month, 1), 60.0))
    return report(
        "simulate", variants, aims, seeds=rounds, weeks=WEEKS * scale, means=means,
        differences=compared,
    )  # fmt: skip


def _replayed(variants: Variants, trace: Trace, name: str, gpus: int) -> Outcome:
    devices = tuple(Device(f"GPU-{n:03}", "cards", node=f"n{n // 4}") for n in range(gpus))
    began = time.process_time()
    outcome = replay(trace, _policy(RIVALS.get(name)), devices, name=name)
    variants.add(name, time.process_time() - began)
    return outcome


def _policy(minutes: int | None) -> PolicyDocument:
    """Return the defaults, or one time-out for everything without regard to who waits."""
    outs = TimeOuts()
    if minutes is not None:
        fixed = minutes * 60.0
        outs = replace(outs, idle=fixed, idle_under_pressure=fixed, quiet=fixed)
    classes = (GPUClass("t4", "cards", max_count=4, time_outs=outs),)
    return PolicyDocument(1, (Pool("cards"),), classes, "t4", outs)


def _figures(outcome: Outcome) -> dict[str, float]:
    waited = outcome.waits.p95
    return {
        "held_hours": outcome.held_hours,
        "wait_p95": OPEN if waited is None else waited,
        "false_reclaims": float(outcome.false_reclaims),
    }


def _means(outcomes: list[Outcome]) -> dict[str, float]:
    rows = [_figures(each) for each in outcomes]
    return {name: round(fmean(row[name] for row in rows), 2) for name in FIGURES}


def _compared(ours: list[Outcome], theirs: list[Outcome]) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of our figure less theirs, seed by seed."""
    pairs = [(_figures(a), _figures(b)) for a, b in zip(ours, theirs, strict=True)]
    found = {}
    for name in FIGURES:
        less = [mine[name] - other[name] for mine, other in pairs]
        half = 1.96 * stdev(less) / sqrt(len(less)) if len(less) > 1 else 0.0
        found[name] = round(fmean(less) - half, 2), round(fmean(less) + half, 2)
    return found


def _told(outcomes: list[Outcome]) -> list[Aim]:
    """Return how many started in the time that they were told, and how wide it was."""
    told = [each.expected for each in outcomes if each.expected.told]
    share = sum(each.within for each in told) / max(1, sum(each.told for each in told))
    widths = [each.width / each.waited for each in told if each.width and each.waited]
    return [
        Aim("started in the time told, at least (share)", round(share, 3), 0.75, at_most=False),
        Aim("started in the time told, at most (share)", round(share, 3), 0.85),
        Aim("width of that time (median wait)", round(max(widths, default=0.0), 2), 2.0),
    ]


def _aims(rival: str, compared: dict[str, dict[str, dict[str, tuple[float, float]]]]) -> list[Aim]:
    """Count, over scenarios and figures, where we are worse and better beyond the interval."""
    counted: Counter[str] = Counter()
    for rivals in compared.values():
        for low, high in rivals[rival].values():
            counted["worse"] += low > 0
            counted["better"] += high < 0
    return [
        Aim(f"figures worse than {rival}", counted["worse"], 0),
        Aim(f"figures better than {rival}", counted["better"], 1, at_most=False),
    ]
