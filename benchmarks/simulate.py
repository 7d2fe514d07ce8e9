"""How the planner does against a fixed time-out and against a hub's culler, on invented people.

Each of the scenarios is replayed for seeds that nothing was tuned on, under the default time-outs
and under each rival.  Compared are, seed by seed, the GPU-hours held, the waits that nineteen of
twenty stay below, and the GPUs taken from somebody who wanted them within a minute; by medians,
for a wait that never ended has no mean.  Every replay compares the time in which those who began to
wait were told to start with when they did.
``rounds`` is the number of seeds; they run beside each other, one on each core.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import comb
from statistics import median
from typing import Any

from benchmarks.measure import Aim, Variants, progress, report
from gpulease.policy.model import Device, GPUClass, PolicyDocument, Pool, TimeOuts
from gpulease.simulate.outcome import ReplayOutcome
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
#: How surely the median of the differences lies in the interval that is told of it.
SURE = 0.95


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the benchmark's result; ``scale`` makes the replays shorter, for a look."""
    return await asyncio.to_thread(_measure, rounds, scale)


def _measure(rounds: int, scale: float) -> dict[str, Any]:
    variants = Variants()
    found: dict[str, dict[str, list[ReplayOutcome]]] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        seeds = range(FIRST, FIRST + rounds)
        begun = {
            scenario: [pool.submit(_seed, scenario, seed, WEEKS * scale) for seed in seeds]
            for scenario in SCENARIOS
        }
        for scenario, futures in begun.items():
            runs = found[scenario] = {name: [] for name in (OURS, *RIVALS)}
            for seed, future in zip(seeds, futures, strict=True):
                for name, (outcome, seconds) in future.result().items():
                    runs[name].append(outcome)
                    variants.add(name, seconds)
                progress(f"  {scenario}, seed {seed}")
    compared = {
        scenario: {name: _compared(runs[OURS], runs[name]) for name in RIVALS}
        for scenario, runs in found.items()
    }
    medians = {
        scenario: {name: _medians(outcomes) for name, outcomes in runs.items()}
        for scenario, runs in found.items()
    }
    told = {scenario: _calibration(runs[OURS]) for scenario, runs in found.items()}
    aims = [aim for name in RIVALS for aim in _aims(name, compared)]
    aims += _told(told)
    month = max(variants.seconds[OURS]) / scale
    aims.append(Aim("a month of a campus (processor s)", round(month, 1), 60.0))
    return report(
        "simulate", variants, aims, seeds=rounds, weeks=WEEKS * scale, medians=medians,
        differences=compared, told=told,
    )  # fmt: skip


def _seed(scenario: str, seed: int, weeks: float) -> dict[str, tuple[ReplayOutcome, float]]:
    """Replay one seed under each time-out; return what came of it and the processor's seconds."""
    made, gpus = SCENARIOS[scenario]
    trace = made(seed, weeks=weeks)
    return {name: _replayed(trace, name, gpus) for name in (OURS, *RIVALS)}


def _replayed(trace: Trace, name: str, gpus: int) -> tuple[ReplayOutcome, float]:
    devices = tuple(Device(f"GPU-{n:03}", "cards", node=f"n{n // 4}") for n in range(gpus))
    began = time.process_time()
    outcome = replay(trace, _policy(RIVALS.get(name)), devices, name=name)
    return outcome, time.process_time() - began


def _policy(minutes: int | None) -> PolicyDocument:
    """Return the defaults, or one time-out for everything without regard to who waits."""
    outs = TimeOuts()
    if minutes is not None:
        fixed = minutes * 60.0
        outs = replace(outs, idle=fixed, idle_under_pressure=fixed, quiet=fixed)
    classes = (GPUClass("t4", "cards", max_count=4, time_outs=outs),)
    return PolicyDocument(1, (Pool("cards"),), classes, "t4", outs)


def _figures(outcome: ReplayOutcome) -> dict[str, float]:
    waited = outcome.waits.p95
    return {
        "held_hours": outcome.held_hours,
        "wait_p95": OPEN if waited is None else waited,
        "false_reclaims": float(outcome.false_reclaims),
    }


def _medians(outcomes: list[ReplayOutcome]) -> dict[str, float | None]:
    """Return each figure's median over the seeds; ``None`` is a wait that never ended."""
    rows = [_figures(each) for each in outcomes]
    found = {name: median(row[name] for row in rows) for name in FIGURES}
    return {name: None if each >= OPEN else round(each, 2) for name, each in found.items()}


def _compared(
    ours: list[ReplayOutcome], theirs: list[ReplayOutcome]
) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of the median of our figure less theirs, seed by seed."""
    pairs = [(_figures(a), _figures(b)) for a, b in zip(ours, theirs, strict=True)]
    return {
        name: _interval([mine[name] - other[name] for mine, other in pairs]) for name in FIGURES
    }


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the narrowest two of the values with the median between them, all but 1 in 20 times.

    It asks nothing of how they are distributed; fewer than six give the least and the most.
    """
    ordered, count = sorted(values), len(values)
    outside, cut = 0.0, 0
    while cut < count // 2:
        outside += 2 * comb(count, cut) / 2**count
        if outside > 1 - SURE:
            break
        cut += 1
    cut = max(cut - 1, 0)
    return round(ordered[cut], 2), round(ordered[-1 - cut], 2)


def _calibration(outcomes: list[ReplayOutcome]) -> dict[str, float]:
    """Return how many started in the time that they were told, and how wide it was."""
    expected = [each.expected for each in outcomes if each.expected.told]
    told = sum(each.told for each in expected)
    shares = [each.within / each.told for each in expected]
    widths = [each.width / each.waited for each in expected if each.width and each.waited]
    return {
        "told": told,
        "within": round(sum(each.within for each in expected) / max(1, told), 3),
        "least": round(min(shares, default=0.0), 3),
        "most": round(max(shares, default=0.0), 3),
        "width": round(median(widths or [0.0]), 2),
        "widest": round(max(widths, default=0.0), 2),
    }


def _told(found: dict[str, dict[str, float]]) -> list[Aim]:
    aims = []
    for scenario, each in found.items():
        share = f"{scenario}: started in the time told"
        aims.append(Aim(f"{share}, least (share)", each["within"], 0.75, at_most=False))
        aims.append(Aim(f"{share}, most (share)", each["within"], 0.85))
        aims.append(Aim(f"{scenario}: width of that time (median waits)", each["width"], 2.0))
    return aims


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
