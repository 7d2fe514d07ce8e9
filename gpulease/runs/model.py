"""The nouns: a run, and the bounds that runs have together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

#: What a parameter of a notebook may be: what YAML and JSON have in common for one value.
Value = str | int | float | bool | None


class RunState(StrEnum):
    """Where a run is in its life."""

    WAITING = "waiting"  # for its turn, for another run, or to be tried again
    STARTING = "starting"  # its notebook server is being started
    RUNNING = "running"  # its cells are being executed
    ENDED = "ended"


class Outcome(StrEnum):
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
    outcome: Outcome | None = None
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
