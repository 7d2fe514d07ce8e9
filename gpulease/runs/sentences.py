"""What a person reads about a run: one sentence, and what they can do."""

from __future__ import annotations

from gpulease.runs.model import Run, RunOutcome, RunState
from gpulease.texts import Text, counted, joined

_WAITS = {
    "": Text("It waits for its turn."),
    "run_limit": Text("It waits until another of your runs has ended."),
    "after": Text("It waits for the run that it follows."),
    "backing_off": Text("It will be tried again soon."),
}
_FAULTS = {
    "server_failed": Text("its notebook server did not start"),
    "start_timeout": Text("its notebook server took too long to start"),
    "server_gone": Text("its notebook server ended"),
    "interrupted": Text("its GPU was taken back while a cell ran"),
    "gpu_lost": Text("its GPU, or the process on it, failed"),
    "kernel_died": Text("its kernel died"),
}
_ENDS = {
    "succeeded": Text("Finished."),
    "notebook_error": Text("A cell failed."),
    "gpu_time_over": Text("A cell ran longer than its GPU was available."),
    "unreadable": Text("The notebook could not be read or written."),
    "cancelled": Text("It was cancelled."),
    "admin_cancelled": Text("An admin cancelled it."),
    "skipped": Text("It was not started: the run that it follows did not succeed."),
    "not_set_up": Text("This hub does not start servers for runs yet."),
}
_BEGINS = {
    "submitted": Text("Submitted."),
    "starting": Text("Its notebook server is starting."),
    "executing": Text("Started."),
    "gpu": Text("GPU assigned."),
    "gpu_changed": Text("It continues with other GPUs."),
    "gpu_left": Text("Its GPU was released."),
}


def sentence(run: Run) -> str:
    """Return what happens, or what happened, to a run."""
    return joined(_about(run), run.note) if run.note else _about(run)


def _about(run: Run) -> str:
    if run.state is RunState.STARTING:
        return Text("Its notebook server is starting.")
    if run.state is RunState.RUNNING:
        return _progress(run)
    fault = _FAULTS.get(run.reason)
    waits = run.state is RunState.WAITING
    if fault is None:
        known, other = (_WAITS, Text("It waits.")) if waits else (_ENDS, Text("It ended."))
        return known.get(run.reason, other)
    if waits:
        return Text("It will be tried again: {fault}.", fault=fault)
    return counted(
        "It was given up after {n} attempt: {fault}.",
        "It was given up after {n} attempts: {fault}.",
        max(1, run.attempt),
        fault=fault,
    )


def _progress(run: Run) -> str:
    if not run.cells:
        return Text("Started.")
    return Text("{done} of {cells} cells are done.", done=run.done, cells=run.cells)


def happened(what: str) -> str:
    """Return what a row of a run's log says: ``what`` is how the store names it."""
    if what in _FAULTS:
        return Text("Fault: {fault}.", fault=_FAULTS[what])
    return {**_WAITS, **_ENDS, **_BEGINS}.get(what, what)


def next_step(run: Run, result: str) -> str:
    """Return what can be done now, "" for nothing."""
    if run.reason == "not_set_up":
        return Text("Ask an admin to switch whole_notebooks on in setup_gpulease.")
    if run.reason == "gpu_time_over":
        return Text(
            "Cut the cell into shorter ones, or write checkpoints. Open {result} to see it.",
            result=result,
        )
    if run.outcome is RunOutcome.SKIPPED or (run.state is RunState.ENDED and not run.started):
        return ""
    if run.state is RunState.ENDED or run.done:
        return Text("Open {result} to see its output.", result=result)
    return ""
