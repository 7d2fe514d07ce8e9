"""`python -m benchmarks NAME [--json] [--rounds N] [--scale S]`: one run, one result on stdout."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import progress

#: Rounds that give a steady 95th percentile in some minutes.
ROUNDS = {
    "agent": 6,
    "asks": 60,
    "attach": 20,
    "cell": 20,
    "looks": 5,
    "files": 10,
    "frameworks": 5,
    "kubernetes": 20,
    "lab": 10,
    "paint": 20,
    "planner": 10,
    "reclaim": 10,
    "screen": 40,
    "service": 60,
    "simulate": 20,
    "transfer": 9,
}
#: Needs root and the test cluster's programs: run by its own name only.
ALONE = "kubernetes"
#: The parts of ``kubernetes``, in the order in which they run.
PARTS = ("start", "warm", "reclaim", "load", "held", "queue", "large", "agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status says only whether it could be measured."""
    arguments = _arguments(argv)
    names = [arguments.name]
    if arguments.name == "all":
        names = [name for name in ROUNDS if name != ALONE]
    results = {name: _measure(name, arguments) for name in names}
    if arguments.json:
        print(json.dumps(results[names[0]] if len(names) == 1 else results, indent=2))
    else:
        print("\n".join(line for result in results.values() for line in table(result)))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*ROUNDS, "all"])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, help="rounds of each variant")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of what is carried, planned or replayed"
    )
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this part (kubernetes); repeatable"
    )
    arguments = parser.parse_args(argv)
    if arguments.part and arguments.name != ALONE:
        parser.error(f"only {ALONE} has parts")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not 0 < arguments.scale <= 1:
        parser.error("--scale must be above 0 and at most 1")
    return arguments


def _measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    rounds = arguments.rounds or ROUNDS[name]
    progress(f"{name}: {rounds} rounds")
    module = importlib.import_module(f"benchmarks.{name}")
    more = {"parts": arguments.part or PARTS} if name == ALONE else {}
    result: dict[str, Any] = asyncio.run(
        module.measure(rounds=rounds, scale=arguments.scale, **more)
    )
    return result


def table(result: dict[str, Any]) -> list[str]:
    """Return a result as lines for a person."""
    if "parts" in result:
        return [line for part in result["parts"].values() for line in table(part)]
    lines = [f"{result['benchmark']}  (milliseconds; {_where(result['machine'])})"]
    for variant, numbers in result["variants"].items():
        lines.append(
            f"  {variant:<32} median {numbers['median'] * 1000:9.1f}   p95"
            f" {numbers['p95'] * 1000:9.1f}   {numbers['rounds']:.0f} rounds"
        )
    for aim in result["aims"]:
        verdict = "met" if aim["met"] else "NOT MET"
        lines.append(f"  {aim['aim']}: measured {aim['measured']:g}, {verdict}")
    return [*lines, ""]


def _where(machine: dict[str, Any]) -> str:
    return f"{machine['cores']} cores, load {machine['load_1_min']}, Python {machine['python']}"


if __name__ == "__main__":
    sys.exit(main())
