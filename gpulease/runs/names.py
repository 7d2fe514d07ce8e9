"""The names that a run gives: its server at the hub, and the notebook with its output."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from gpulease.runs.model import Run

#: Names of named servers are 1 to 30 lower-case letters, digits and single hyphens (JupyterHub 6).
_PREFIX = "run-"
_SERVER = re.compile(r"run-([0-9a-f]{12})")


def server_of(run_id: str) -> str:
    """Return the name of a run's notebook server."""
    return _PREFIX + run_id


def run_of(server: str) -> str:
    """Return the run whose server has this name, "" for a server that is no run's."""
    found = _SERVER.fullmatch(server)
    return found[1] if found else ""


def result_of(run: Run) -> str:
    """Return the path of the notebook with a run's output, beside its source.

    ``train.ipynb`` becomes ``train.run-3f9a1c20b7de.ipynb``, of an array's seventh run
    ``train.run-3f9a1c20b7de-7.ipynb``, where the letters are the array's.
    """
    source = PurePosixPath(run.notebook)
    part = run.id if run.index is None else f"{run.array}-{run.index}"
    return str(source.with_name(f"{source.stem}.run-{part}{source.suffix}"))
