"""``gpulease verify NOTEBOOK``: the command line, and the report that an author acts on."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.system import terminal
from gpulease.verify.compare import Difference, Steady, compare, steady
from gpulease.verify.notebook import CodeCell, read
from gpulease.verify.placements import PATTERNS, SEED, Placement, placements
from gpulease.verify.runner import NotebookRun, Runner


@dataclass(frozen=True)
class Tried:
    """One placement: its findings, how long it took, what gpulease said under the cells."""

    where: Placement
    findings: list[Difference]
    seconds: float
    notes: list[str]

    @property
    def same(self) -> bool:
        """Whether the notebook is the same; a value that stays on the GPU says so when read."""
        return all(finding.kind == "stays" for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gpulease verify``."""
    parser.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="the notebook")
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        choices=list(PATTERNS),
        metavar="NAME",
        help="where its cells run; repeatable; by default all: "
        + "; ".join(f"{name}: {what}" for name, what in PATTERNS.items()).replace("%", "%%"),
    )
    parser.add_argument(
        "--seed", default=str(SEED), help=f"of the patterns random and interrupted ({SEED})"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds for one cell (600)"
    )
    parser.add_argument("--kernel", default="", help="kernel to use (the notebook's)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Verify one notebook; return 0 where every placement gives what a plain kernel gives, else 1.

    Raises:
        GPULeaseError: the notebook cannot be read or run.
    """
    cells, kernel = read(arguments.notebook)
    say = _say if not arguments.json else (lambda _text: None)
    runner = Runner(
        arguments.kernel or kernel, arguments.notebook.absolute().parent, arguments.timeout
    )
    say(f"{arguments.notebook}: {len(cells)} code cells")
    plain, what = _plain(runner, cells, say)
    tried = []
    for where in placements(arguments.pattern, len(cells), arguments.seed):
        tried.append(_try(runner, cells, plain, what, where))
        say(_lines(tried[-1]))
    same = all(each.same for each in tried)
    if arguments.json:
        print(json.dumps(_report(arguments.notebook, cells, what, tried), indent=1))  # noqa: T201
    else:
        held = "every placement gives" if same else "not every placement gives"
        say(f"{held} what a plain kernel gives")
    return 0 if same else 1


def _plain(runner: Runner, cells: list[CodeCell], say: Any) -> tuple[NotebookRun, Steady]:
    began = time.monotonic()
    plain = runner.plain(cells)
    failed = [cell.number for cell, each in zip(cells, plain.cells, strict=True) if not each.ok]
    what = steady(cells, plain, runner.plain(cells))
    say(f"  plain kernel, twice: {time.monotonic() - began:.1f} s")
    if failed:
        say(f"  cells that fail there too: {', '.join(map(str, failed))}")
    for remark in what.remarks:
        say(f"  cell {remark.cell}{_of(remark)}: {remark.advice}")
    return plain, what


def _try(
    runner: Runner, cells: list[CodeCell], plain: NotebookRun, what: Steady, where: Placement
) -> Tried:
    began = time.monotonic()
    try:
        placed = runner.placed(cells, where, list(plain.picture["values"]))
    except GPULeaseError as error:
        if error.reason not in ("cell_timeout", "verify_failed"):
            raise
        finding = Difference(0, "error", "", "", error.sentence, error.next_step or "")
        return Tried(where, [finding], time.monotonic() - began, [])
    notes = [
        f"cell {cell.number}: {note}"
        for cell, each in zip(cells, placed.cells, strict=True)
        for note in each.notes
    ]
    findings = compare(cells, plain, placed, what)
    return Tried(where, findings, time.monotonic() - began, notes)


def _lines(tried: Tried) -> str:
    head = "same   " if tried.same else "DIFFERS"
    lines = [f"  {head}  {tried.where.name} ({tried.seconds:.1f} s)"]
    for finding in tried.findings:
        lines.append(f"    cell {finding.cell}{_of(finding)}: {finding.kind}")
        if finding.kind == "set aside":
            lines.append(f"      {finding.found}")
        else:
            lines.append(f"      in a plain kernel: {finding.expected}")
            lines.append(f"      here:              {finding.found}")
        lines.append(f"      {finding.advice}")
    lines += [f"    said under {note}" for note in tried.notes]
    return "\n".join(lines)


def _of(finding: Difference) -> str:
    return f", {finding.name}" if finding.name else ""


def _report(
    notebook: Path, cells: Iterable[CodeCell], what: Steady, tried: Iterable[Tried]
) -> dict[str, Any]:
    return {
        "notebook": str(notebook),
        "cells": [cell.number for cell in cells],
        "not_repeatable": [{"cell": r.cell, "name": r.name} for r in what.remarks],
        "placements": [
            {
                "name": each.where.name,
                "same": each.same,
                "seconds": round(each.seconds, 3),
                "findings": [asdict(finding) for finding in each.findings],
                "notes": each.notes,
            }
            for each in tried
        ],
    }


def _say(text: str) -> None:
    terminal.say(text)
    sys.stdout.flush()
