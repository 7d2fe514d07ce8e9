"""What must fit together in the time-outs of a policy document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpulease.policy.catalog import TimeOuts
from gpulease.policy.document.source import Path, Problem, Source
from gpulease.policy.units import format_duration
from gpulease.texts import Text

#: A warning above this (seconds) is rather a mistake than meant.
_LONG_WARNING: Final = 3600.0


def of_time_outs(outs: TimeOuts, source: Source, at: Path) -> Iterator[Problem]:
    """Return what is wrong with the time-outs of the document or of a class."""
    if outs.hard_length < outs.warning:
        message = Text(
            "hard_length ({length}) is shorter than the warning ({warning}): every lease would "
            "be warned at once.",
            length=format_duration(outs.hard_length),
            warning=format_duration(outs.warning),
        )
        yield Problem(
            (*at, "hard_length"), message, Text("Make hard_length longer or warning shorter.")
        )
    if (*at, "idle_under_pressure") in source and outs.idle_under_pressure > outs.idle:
        message = Text(
            "idle_under_pressure ({time}) is longer than idle ({idle}), which counts then.",
            time=format_duration(outs.idle_under_pressure),
            idle=format_duration(outs.idle),
        )
        step = Text("Write for example {idle}.", idle=format_duration(outs.idle))
        yield Problem((*at, "idle_under_pressure"), message, step, level="caution")
    if (*at, "warning") not in source:
        return
    if outs.warning == 0:
        message = Text(
            "With a warning of 0s a GPU leaves without any notice, and nobody can press Keep."
        )
        yield Problem((*at, "warning"), message, Text("Write for example 60s."), level="caution")
    elif outs.warning > _LONG_WARNING:
        message = Text(
            "A GPU that is to leave is held for another {time} first.",
            time=format_duration(outs.warning),
        )
        step = Text("Write for example 60s; who needs longer can press Keep.")
        yield Problem((*at, "warning"), message, step, level="caution")
