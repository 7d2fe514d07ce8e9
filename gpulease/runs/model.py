"""The nouns: a run, the names that it gives (server, output), and the bounds of all runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

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


#: What a parameter of a notebook may be: what YAML and JSON have in common for one value.
Value = str | int | float | bool | None


class RunState(StrEnum):
    """Where a run is in its life."""

    WAITING = "waiting"  # for its turn, for another run, or to be tried again
    STARTING = "starting"  # its notebook server is being started
    RUNNING = "running"  # its cells are being executed
    ENDED = "ended"


class RunOutcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # a run that it was to follow did not succeed


class OnLoss(StrEnum):
    """What follows when the notebook's kernel dies."""

    FAIL = "fail"
    RESTART = "restart"


@dataclass(frozen=True)
class Run:
    """One execution of a notebook, as stored.

    ``notebook`` is a path as the person's server sees it.  ``options`` is what their server was
    started with, so that a run has the same image.  ``boot`` names the server process that executes
    it.  ``cleared``: nothing of a server of it is left at the hub.
    """

    id: str
    user: str
    notebook: str
    created: datetime
    gpu_class: str | None = None
    count: int = 1  # GPUs, of all nodes together
    nodes: int = 1
    min_count: int | None = None  # it can live with so few of them; None: all
    at_least: int | None = None  # it can live with so many percent of a card; None: all
    wanted: float | None = None  # seconds that a lease of its GPU cells is asked for
    project: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    array: str = ""
    index: int | None = None
    on_loss: OnLoss = OnLoss.FAIL
    groups: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    state: RunState = RunState.WAITING
    state_since: datetime | None = None
    reason: str = ""
    note: str = ""  # what went wrong, in words
    attempt: int = 0
    not_before: datetime | None = None
    boot: str = ""
    cells: int = 0
    done: int = 0
    cleared: bool = True
    started: datetime | None = None
    ended: datetime | None = None
    outcome: RunOutcome | None = None
    opens: str = ""  # its output below the root of the person's server, "" outside of it
    version: int = 1


@dataclass(frozen=True)
class Terms:
    """What runs are held to; durations in seconds."""

    at_once: int = 2  # of one person
    attempts: int = 3  # starts of one run, faults of its notebook not counted: those end it
    start_max: float = 900.0  # until the server is there and its run has begun
    pause: float = 30.0  # before it is tried again; doubled with each attempt


@dataclass(frozen=True)
class ServerSeen:
    """A run's notebook server as the hub shows it."""

    ready: bool = False
