"""The ``time_outs`` of the policy document and of a class: YAML in, ``TimeOuts`` or findings out.

Owns the bounds of each, with the reason, and what is allowed but worth a caution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from gpulease.policy.document.nodes import LONGEST, Bound, Reader
from gpulease.policy.model import TimeOuts
from gpulease.policy.units import format_duration
from gpulease.texts import Text

TIME_OUT_NAMES: Final = tuple(field.name for field in fields(TimeOuts))
#: Those that are numbers, not durations.
COUNTED: Final = frozenset({"keeps"})
#: What a form offers of a number; a document may say more.
MOST_COUNTED: Final = 1000
_MAY_BE_ZERO = frozenset(
    {"warm_up", "keep", "keeps", "interrupt_grace", "minimum_runtime", "warning"}
)
_UNUSED = Bound(
    7 * 86400.0, Text("7 days"), Text("a GPU that nobody uses would hardly ever come back")
)
_WAITED_FOR = Bound(86400.0, Text("1 day"), Text("others wait for the GPU meanwhile"))
_LEASED = Bound(366 * 86400.0, Text("366 days"), Text("no lease is granted for longer"))
_BOUNDS: Mapping[str, Bound] = {
    "idle": _UNUSED,
    "idle_under_pressure": _UNUSED,
    "quiet": _UNUSED,
    "keep": _UNUSED,
    "claim": _UNUSED,
    "unknown_hold": _UNUSED,
    "minimum_runtime": _UNUSED,
    "wait": _UNUSED,
    "warm_up": _WAITED_FOR,
    "warning": _WAITED_FOR,
    "drain_max": _WAITED_FOR,
    "interrupt_grace": _WAITED_FOR,
    "start_max": _WAITED_FOR,
    "hard_length": _LEASED,
    "busy_max": _LEASED,
}
#: A warning above this (seconds) is rather a mistake than meant.
_LONG_WARNING = 3600.0


@dataclass(frozen=True)
class TimeOutField:
    """What a form says beside one time-out; durations in seconds."""

    name: str
    counted: bool  # a number, not a duration
    default: float
    least: float
    most: float
    why: str  # the reason for ``most``; "" where there is none


def form() -> tuple[TimeOutField, ...]:
    """Return the fields of a form of time-outs, in the order of the document."""
    defaults, found = TimeOuts(), []
    for name in TIME_OUT_NAMES:
        bound = _BOUNDS.get(name, LONGEST)
        counted = name in COUNTED
        found.append(
            TimeOutField(
                name,
                counted,
                getattr(defaults, name),
                0 if name in _MAY_BE_ZERO else 1,
                MOST_COUNTED if counted else bound.most,
                "" if counted else bound.why,
            )
        )
    return tuple(found)


def read_time_outs(section: Reader, base: TimeOuts) -> TimeOuts:
    """Return the time-outs of a section; what it leaves out is ``base``'s."""
    read: dict[str, Any] = {}
    for name in TIME_OUT_NAMES:
        least = 0 if name in _MAY_BE_ZERO else 1e-3
        if name in COUNTED:
            read[name] = section.whole(name, getattr(base, name), least=0)
        else:
            bound = _BOUNDS.get(name, LONGEST)
            read[name] = section.duration(name, getattr(base, name), least=least, bound=bound)
    outs = TimeOuts(**read)
    if outs.hard_length < outs.warning:
        section.wrong(
            "hard_length",
            Text(
                "hard_length ({length}) is shorter than the warning ({warning}): every lease would "
                "be warned at once.",
                length=format_duration(outs.hard_length),
                warning=format_duration(outs.warning),
            ),
            Text("Make hard_length longer or warning shorter."),
        )
    if "warning" in section.names:
        _caution(section, outs.warning)
    return outs


def _caution(section: Reader, warning: float) -> None:
    if warning == 0:
        section.wrong(
            "warning",
            Text(
                "With a warning of 0s a GPU leaves without any notice, and nobody can press Keep."
            ),
            Text("Write for example 60s."),
            "caution",
        )
    elif warning > _LONG_WARNING:
        section.wrong(
            "warning",
            Text(
                "A GPU that is to leave is held for another {time} first.",
                time=format_duration(warning),
            ),
            Text("Write for example 60s; who needs longer can press Keep."),
            "caution",
        )
