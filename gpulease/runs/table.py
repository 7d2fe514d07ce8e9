"""The one table of a run's life: which state may follow which, and for which reasons."""

from __future__ import annotations

from gpulease.runs.model import RunState

_W, _S, _R, _E = RunState.WAITING, RunState.STARTING, RunState.RUNNING, RunState.ENDED

#: Why a run waits.
WAITS = frozenset({"", "run_limit", "after", "backing_off"})
#: Faults of what runs it, never of the notebook: it is tried again.
FAULTS = frozenset({"server_failed", "start_timeout", "server_gone", "interrupted", "gpu_lost"})
#: Why it ends; ``kernel_died`` may also begin another attempt.
ENDS = frozenset(
    {
        "succeeded", "notebook_error", "gpu_time_over", "unreadable", "kernel_died", "cancelled",
        "admin_cancelled", "skipped",
    }
) | FAULTS  # fmt: skip

TABLE: dict[tuple[RunState, RunState], frozenset[str]] = {
    (_W, _W): WAITS,
    (_W, _S): frozenset({"starting"}),
    (_W, _E): frozenset({"cancelled", "admin_cancelled", "skipped"}),
    (_S, _R): frozenset({"executing"}),
    (_S, _W): FAULTS,
    (_S, _E): FAULTS | {"cancelled", "admin_cancelled", "not_set_up"},
    (_R, _R): frozenset({"executing"}),
    (_R, _W): FAULTS | {"kernel_died"},
    (_R, _E): ENDS - {"skipped"},
    (_E, _E): frozenset({"cleared"}),
}
