"""What differs between a notebook in a plain kernel and the same notebook placed, and what to do.

Pure.  What differs between two plain runs already is no fault of a placement: it is set aside.  So
is what comes after an error that only the placement has, which may differ for that reason alone.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulease.verify.notebook import CodeCell
from gpulease.verify.outputs import (
    lines_of_stderr,
    seen,
    without_durations,
    without_lines,
    without_once,
)
from gpulease.verify.runner import CellRun, NotebookRun

_SHOWN = 300
_SEED = (
    "It differs from run to run in a plain kernel too, so it is not compared. Seed its random "
    "numbers and leave out times, and it will be."
)
_REPORT = (
    "If docs/transfer.md does not except it, this is a fault of gpulease: please report it with "
    "this notebook."
)
_AFTER = (
    "They differ after this cell's error and perhaps because of it, so they are not compared. Fix "
    "the cell and verify again, and they will be."
)


@dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        cell: number in the notebook, from 1, text cells counted; 0 for none in particular.
        kind: ``error``, ``output``, ``value``, ``type``, ``alias``, ``missing`` or ``stays``;
            ``set aside``: what differs after an error, in ``found``.
        name: the variable, "" for what a cell showed.
        expected: in the plain kernel.
        found: in this placement.
        advice: what the author can do.
    """

    cell: int
    kind: str
    name: str
    expected: str
    found: str
    advice: str


@dataclass(frozen=True)
class Steady:
    """What is the same in two plain runs, and so can be compared.

    ``cells`` are indices of those that are not; ``names`` and ``aliases`` likewise.
    """

    cells: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()
    aliases: bool = True
    remarks: list[Difference] = field(default_factory=list)


def steady(cells: Sequence[CodeCell], first: NotebookRun, second: NotebookRun) -> Steady:
    """Return what differs from run to run, with a remark for each."""
    shaky = frozenset(
        index
        for index, (a, b) in enumerate(zip(first.cells, second.cells, strict=True))
        if shown(a) != shown(b)
    )
    mine, theirs = first.picture["values"], second.picture["values"]
    names = frozenset(
        name for name in mine.keys() | theirs.keys() if not _alike(mine, theirs, name)
    )
    remarks = [Difference(cells[i].number, "output", "", "", "", _SEED) for i in sorted(shaky)]
    remarks += [Difference(_made(cells, n), "value", n, "", "", _SEED) for n in sorted(names)]
    return Steady(shaky, names, first.picture["aliases"] == second.picture["aliases"], remarks)


def compare(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady
) -> list[Difference]:
    """Return how a placed run differs from the plain one."""
    for index, (expected, found) in enumerate(zip(plain.cells, placed.cells, strict=True)):
        if expected.ok and not found.ok:
            before = _outputs(cells, plain, placed, what, range(index))
            return [
                *before,
                _error(cells[index], found),
                *_aside(cells, plain, placed, what, index),
            ]
    findings = _outputs(cells, plain, placed, what, range(len(cells)))
    return [*findings, *_values(cells, plain, placed, what)]


def shown(run: CellRun, known: Collection[str] = ()) -> str:
    """Return what a cell showed as text that two runs can be compared by.

    ``known``: lines on stderr that do not count.
    """
    messages = [_without_frames(message) for message in run.messages]
    streams, others, reply = seen(messages, {**run.reply, "traceback": None})
    text = json.dumps([without_once(streams, known), others, reply], ensure_ascii=False)
    return without_lines(without_durations(text))


def _without_frames(message: dict[str, Any]) -> dict[str, Any]:
    if message["msg_type"] != "error":
        return message
    return {**message, "content": {**message["content"], "traceback": []}}


def _outputs(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady, which: range
) -> list[Difference]:
    findings = []
    for index in which:
        expected, found = shown(plain.cells[index]), shown(placed.cells[index])
        if expected != found:  # the other side may warn of what was warned of before, for itself
            before = [lines_of_stderr(run.messages) for run in plain.cells[:index]]
            again = set().union(*before) - lines_of_stderr(plain.cells[index].messages)
            found = shown(placed.cells[index], again)
        if expected != found and index not in what.cells:
            one, other = _apart(expected, found)
            findings.append(Difference(cells[index].number, "output", "", one, other, _REPORT))
    return findings


def _error(cell: CodeCell, run: CellRun) -> Difference:
    name, text = str(run.reply.get("ename", "")), str(run.reply.get("evalue", ""))
    found = f"{name}: {text}"
    if name == "GPULeaseError":
        advice = (
            "What cannot travel is made in the cell that uses it, or its cells run on one side."
        )
    elif name == "ModuleNotFoundError":
        advice = "Both sides need the package."
    else:
        advice = f"Run this cell where what it uses was made. {_REPORT}"
    return Difference(cell.number, "error", "", "no error", found[:_SHOWN], advice)


def _aside(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady, failed: int
) -> list[Difference]:
    """Return in one finding what differs after the error of a cell; nothing where nothing does."""
    later = _outputs(cells, plain, placed, what, range(failed + 1, len(cells)))
    names = {finding.name for finding in _values(cells, plain, placed, what)}
    parts = [
        f"{one if len(which) == 1 else one + 's'} {', '.join(which)}"
        for one, which in (
            ("cell", [str(finding.cell) for finding in later]), ("variable", sorted(names)),
        )
        if which
    ]  # fmt: skip
    if not parts:
        return []
    return [Difference(cells[failed].number, "set aside", "", "", "; ".join(parts), _AFTER)]


def _values(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady
) -> list[Difference]:
    findings = []
    mine, theirs = plain.picture["values"], placed.picture["values"]
    for name in mine:
        cell = _made(cells, name)
        if name in placed.stayed:
            one, other = mine[name][1][:_SHOWN], placed.stayed[name][:_SHOWN]
            step = (
                "Make it in the cell that uses it; a cell that reads it on the other side stops "
                "and says so."
            )
            findings.append(Difference(cell, "stays", name, one, other, step))
        elif name not in theirs:
            findings.append(
                Difference(cell, "missing", name, mine[name][1][:_SHOWN], "not defined", _REPORT)
            )
        elif mine[name][0] != theirs[name][0]:
            findings.append(Difference(cell, "type", name, mine[name][0], theirs[name][0], _REPORT))
        elif name not in what.names and not _alike(mine, theirs, name):
            one, other = _apart(mine[name][1], theirs[name][1])
            findings.append(Difference(cell, "value", name, one, other, _REPORT))
    if findings or not what.aliases:
        return findings
    return _aliases(cells, plain.picture["aliases"], placed.picture["aliases"])


def _aliases(
    cells: Sequence[CodeCell], plain: list[list[str]], placed: list[list[str]]
) -> list[Difference]:
    findings = []
    for one, other, words in ((plain, placed, "lost"), (placed, plain, "new")):
        for group in one:
            if group not in other:
                text = " is ".join(group[:4])
                pair = (text, "no longer the same") if words == "lost" else ("apart", text)
                name = group[0].partition("[")[0].partition(".")[0]
                findings.append(Difference(_made(cells, name), "alias", name, *pair, _REPORT))
    return findings


def _alike(mine: dict[str, Any], theirs: dict[str, Any], name: str) -> bool:
    one, other = mine.get(name), theirs.get(name)
    return one is not None and other is not None and one[2] == other[2]


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return both texts from a little before they part."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, at - 40)
    return one[start : start + _SHOWN], other[start : start + _SHOWN]


def _made(cells: Sequence[CodeCell], name: str) -> int:
    """Return the last cell that binds a name; 0 where none does so by its text."""
    return next((cell.number for cell in reversed(cells) if name in _binds(cell.plain)), 0)


def _binds(source: str) -> set[str]:
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return found
