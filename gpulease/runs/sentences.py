"""What a person reads about a run: one sentence, and what they can do."""

from __future__ import annotations

from gpulease.runs.model import Outcome, Run, RunState

_WAITS = {
    "": "It waits for its turn.",
    "run_limit": "It waits until another of your runs has ended.",
    "after": "It waits for the run that it follows.",
    "backing_off": "It will be tried again soon.",
}
_FAULTS = {
    "server_failed": "its notebook server did not start",
    "start_timeout": "its notebook server took too long to start",
    "server_gone": "its notebook server ended",
    "interrupted": "its GPU was needed by somebody else while a cell ran",
    "kernel_died": "its kernel died",
}
_ENDS = {
    "succeeded": "Every cell ran.",
    "notebook_error": "A cell failed.",
    "gpu_time_over": "A cell went on beyond the time for which its GPU may be had.",
    "unreadable": "The notebook could not be read or written.",
    "cancelled": "It was cancelled.",
    "skipped": "It was not started: the run that it follows did not succeed.",
    "not_set_up": "This hub does not start servers for runs yet.",
}
_BEGINS = {
    "submitted": "It was submitted.",
    "starting": "Its notebook server is starting.",
    "executing": "It begins.",
}


def sentence(run: Run) -> str:
    """Return what happens, or what happened, to a run."""
    return f"{_about(run)} {run.note}".strip() if run.note else _about(run)


def _about(run: Run) -> str:
    if run.state is RunState.STARTING:
        return "Its notebook server is starting."
    if run.state is RunState.RUNNING:
        return f"{run.done} of {run.cells} cells are done." if run.cells else "It begins."
    fault = _FAULTS.get(run.reason, "")
    if run.state is RunState.WAITING:
        return f"It will be tried again: {fault}." if fault else _WAITS.get(run.reason, "It waits.")
    if fault:
        tries = f" {run.attempt} times" if run.attempt > 1 else ""
        return f"It was given up{tries}: {fault}."
    return _ENDS.get(run.reason, "It ended.")


def happened(what: str) -> str:
    """Return what a row of a run's log says: ``what`` is how the store names it."""
    if what in _FAULTS:
        return f"Fault: {_FAULTS[what]}."
    return {**_WAITS, **_ENDS, **_BEGINS}.get(what, what)


def next_step(run: Run, result: str) -> str:
    """Return what can be done now, "" for nothing."""
    if run.reason == "not_set_up":
        return "Ask an admin to switch whole_notebooks on in setup_gpulease."
    if run.reason == "gpu_time_over":
        return f"Cut the cell into shorter ones, or write checkpoints. Open {result} to see it."
    if run.outcome is Outcome.SKIPPED or (run.state is RunState.ENDED and not run.started):
        return ""
    if run.state is RunState.ENDED or run.done:
        return f"Open {result} to see its output."
    return ""
