"""Runs the corpus: ``python -m tests.corpus [WORDS] [--placements ...] [--json FILE] [--plain]``.

Exit status 1 where a placement was silently different, or where a plain kernel is not repeatable.
A notebook whose packages are missing is an error, not a skip: leave its room out by its name.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from gpulease.errors import GPULeaseError
from gpulease.verify.compare import steady
from gpulease.verify.placements import PATTERNS, SEED, placements
from gpulease.verify.runner import Runner
from tests.corpus import form, judge

PLACEMENTS = ("alternating", "alternating-home", "random", "interrupted")
#: One core for each process; a network is not needed, so none is waited for.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}
TIMEOUT = 300.0


class Desk:
    """A directory that is empty at the start of each run, always under one path."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self._runner = Runner("python3", self.directory, TIMEOUT)

    def plain(self, notebook):
        return self._cleared().plain(notebook.cells)

    def placed(self, notebook, where, names):
        return self._cleared().placed(notebook.cells, where, names)

    def _cleared(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        return self._runner


@contextmanager
def desk():
    with tempfile.TemporaryDirectory(prefix="corpus-") as outer:
        yield Desk(Path(outer) / "work")


def rows(at, notebook, patterns, seed=SEED):
    """Yield a row for each placement of a notebook."""
    plain = at.plain(notebook)
    again = cache(lambda: at.plain(notebook))
    names = list(plain.picture["values"])
    for where in placements(patterns, len(notebook.cells), f"{seed} {notebook.name}"):
        try:
            placed = at.placed(notebook, where, names)
        except GPULeaseError as error:
            yield _stopped(notebook, where, error)
            continue
        yield judge.row(notebook, where, plain, placed, again)


def _stopped(notebook, where, error):
    finding = {"as": "silent", "cell": 0, "kind": error.reason, "name": "", "expected": "",
               "found": error.sentence}  # fmt: skip
    return {"notebook": notebook.name, "placement": where.name, "result": "silent",
            "findings": [finding], "notes": []}  # fmt: skip


def unsteady(at, notebook):
    """Return what is wrong with a notebook in a plain kernel, and which variables differ anyway.

    Objects of libraries hold times and addresses; such a variable is not compared.
    """
    first = at.plain(notebook)
    what = steady(notebook.cells, first, at.plain(notebook))
    wrong = [f"cell {r.cell}: it differs from run to run" for r in what.remarks if not r.name]
    expected = notebook.tagged("raises-exception")
    for cell, run in zip(notebook.cells, first.cells, strict=True):
        if run.ok == (cell.number in expected):
            said = f"{run.reply.get('ename')}: {run.reply.get('evalue')}"
            wrong.append(f"cell {cell.number}: {said if not run.ok else 'it raises nothing'}")
    return wrong, sorted(what.names)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of notebooks; all without")
    parser.add_argument("--placements", nargs="+", default=PLACEMENTS, choices=list(PATTERNS))
    parser.add_argument("--seed", default=str(SEED))
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the table")
    parser.add_argument("--plain", action="store_true", help="run each twice in a plain kernel")
    chosen = parser.parse_args(arguments)
    os.environ.update(ENVIRONMENT)
    notebooks = form.every(chosen.words)
    with desk() as at:
        return (_plain if chosen.plain else _place)(at, notebooks, chosen)


def _plain(at, notebooks, chosen):
    wrong = 0
    for notebook in notebooks:
        began = time.monotonic()
        lines, shaky = unsteady(at, notebook)
        wrong += bool(lines)
        _say(f"{'WRONG' if lines else 'good '} {notebook.name} ({time.monotonic() - began:.0f} s)")
        for line in lines + [f"not compared: {', '.join(shaky)}"] * bool(shaky):
            _say(f"    {line}")
    _say(f"{len(notebooks)} notebooks, {wrong} wrong")
    return 1 if wrong else 0


def _place(at, notebooks, chosen):
    table = []
    for notebook in notebooks:
        for row in rows(at, notebook, chosen.placements, chosen.seed):
            table.append(row)
            _say(f"{row['result']:8} {row['notebook']}  {row['placement']}")
            for found in row["findings"]:
                if found["as"] != "same":
                    _say(f"    cell {found['cell']} {found['kind']} {found['name']}")
                    _say(f"      plain: {found['expected']}\n      here:  {found['found']}")
        if chosen.json:
            chosen.json.write_text(json.dumps(table, indent=1) + "\n")
    _say(f"{len(notebooks)} notebooks: {judge.summary(table)}")
    return 1 if any(row["result"] == "silent" for row in table) else 0


def _say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
