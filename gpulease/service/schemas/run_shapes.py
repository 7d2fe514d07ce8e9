"""The shapes of what the service answers about runs of whole notebooks."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from gpulease.protocol import BudgetView


class RunView(TypedDict):
    """A run of a whole notebook."""

    id: str
    user: str
    notebook: str
    result: str  # the notebook with its output, beside the source
    opens: str  # the same below the root of the person's server, "" outside of it
    server: str
    state: Literal["waiting", "starting", "running", "ended"]
    reason: str
    sentence: str
    next_step: str
    outcome: Literal["succeeded", "failed", "cancelled", "skipped"] | None
    attempt: int
    cells: int
    done: int
    gpu: str  # how it stands with its GPU, "" for none
    gpu_class: str | None
    count: int
    nodes: int
    min_count: int | None  # it can live with so few; None: all
    at_least: int | None  # it can live with so many percent of a card; None: all
    seconds: float | None
    project: str | None
    budget: BudgetView | None  # what is left of what its GPU is charged to; None: no bound
    parameters: dict[str, str | bool | int | float | None]
    after: list[str]
    array: str
    index: int | None
    on_loss: Literal["fail", "restart"]
    created: str
    started: str | None
    ended: str | None
    version: int


class RunEventView(TypedDict):
    """What happened to a run."""

    at: str
    who: str
    what: str  # machine-readable
    sentence: str
    note: str
