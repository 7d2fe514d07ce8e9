"""What another policy would have made of the same days: both replayed, with a sensitivity range.

Runs as a process of its own: a question on the standard input, a
line of JSON for each replay on the standard output, so that what is done by the time limit counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from gpulease.policy import document
from gpulease.policy.document import edit
from gpulease.policy.model import Device, PolicyDocument
from gpulease.simulate.table import duration
from gpulease.simulate.trace import TRACE, Trace, devices_from_json
from gpulease.simulate.world import Assumptions, replay
from gpulease.texts import Text

ASSUMPTION: Final = Text(
    "People are assumed to behave as they did: the same GPU work with the same time to think"
    " between, a longer wait moving all that follows. Shorter time-outs may change that, so it is"
    " worked out again with half and with twice the time to think."
)
#: Factors of the time to think; the first is what is shown, the others are its sensitivity.
THINK: Final = (1.0, 0.5, 2.0)
NOW, THEN, CURVE = "now", "then", "curve"
#: Factors of the idle time-out in force that are tried for the curve; 1 is the first pair's.
IDLE: Final = (0.25, 0.5, 2.0, 4.0)
#: Figures whose range over the time to think is given.
_RANGED = ("held_hours", "busy_hours", "reclaims", "false_reclaims", "reattaches")
_WAITS = ("p50", "p95")


def replays(
    trace: Trace,
    policies: Mapping[str, PolicyDocument],
    devices: Sequence[Device],
    factors: Sequence[float] = THINK,
) -> Iterator[dict[str, Any]]:
    """Yield what came of each policy under each time to think, the most telling first."""
    watch = ""  # the GPU whose time line is shown: the same under each
    for think in factors:
        for name, policy in policies.items():
            found = replay(trace, policy, devices, Assumptions(think=think), name=name, watch=watch)
            watch = found.gpu.uuid
            yield {"think": think, "name": name, "outcome": found.to_json()}


def trade_offs(
    trace: Trace, text: str, devices: Sequence[Device], factors: Sequence[float] = IDLE
) -> Iterator[dict[str, Any]]:
    """Yield what came of a document with other idle time-outs, for the curve."""
    outs = document.parse(text, 0).time_outs
    (bounds,) = (each for each in document.form() if each.name == "idle")
    tried = {round(min(max(outs.idle * each, bounds.least), bounds.most)) for each in factors}
    for idle in sorted(tried - {outs.idle}):
        pressed = min(idle, outs.idle_under_pressure)
        values = {"idle": f"{idle}s", "idle_under_pressure": f"{pressed:g}s"}
        policy = document.parse(edit.with_time_outs(text, values), 0)
        found = replay(trace, policy, devices, Assumptions(), name=CURVE)
        yield {"idle": idle, "name": CURVE, "outcome": found.to_json()}


def curve(found: Sequence[Mapping[str, Any]], idle: float) -> list[dict[str, Any]]:
    """Return the points of the curve by idle time-out, with the one in force (``idle``)."""
    points = {each["idle"]: each["outcome"] for each in found if each["name"] == CURVE}
    points[idle] = next(each["outcome"] for each in found if each["name"] == NOW)
    return [
        {
            "idle": seconds,
            "saved_hours": round(outcome["saved_hours"], 2),
            "interrupted": outcome["false_reclaims"],
        }
        for seconds, outcome in sorted(points.items())
    ]


def answer(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the comparison that these replays make; ``None`` where not even one pair is whole.

    ``complete`` says whether every time to think was worked out.
    """
    by_factor: dict[float, dict[str, Any]] = {}
    for each in (each for each in found if each["name"] != CURVE):
        by_factor.setdefault(each["think"], {})[each["name"]] = each["outcome"]
    whole = {think: both for think, both in by_factor.items() if {NOW, THEN} <= both.keys()}
    if THINK[0] not in whole:
        return None
    both = whole[THINK[0]]
    return {
        "assumption": ASSUMPTION,
        "now": both[NOW],
        "then": both[THEN],
        "sensitivity": {
            "think": sorted(whole),
            "differences": ranges([(both[NOW], both[THEN]) for both in whole.values()]),
        },
        "sentences": sentences(both[NOW], both[THEN]),
        "complete": len(whole) == len(THINK),
    }


def ranges(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> dict[str, dict[str, float | None]]:
    """Return by figure the least and the most by which the second of each pair is more.

    Args:
        pairs: outcomes as JSON values, two policies' under each time to think.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name in _RANGED + _WAITS:
        figures = [(_figure(now, name), _figure(then, name)) for now, then in pairs]
        known = [then - now for now, then in figures if now is not None and then is not None]
        found[name] = {"least": min(known, default=None), "most": max(known, default=None)}
    return found


def _figure(outcome: Mapping[str, Any], name: str) -> float | None:
    found: float | None = outcome["waits"][name] if name in _WAITS else outcome[name]
    return found


def sentences(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Return what would have been different, in words; a figure that stays is left out."""
    said: list[str] = []
    held = then["held_hours"] - now["held_hours"]
    if abs(held) >= 0.05:
        hours = {"hours": f"{abs(held):.1f}", "share": ""}
        if now["held_hours"]:
            hours["share"] = f" ({abs(held) / now['held_hours']:.0%})"
        said.append(
            Text("GPUs would have been held for {hours} GPU-hours fewer{share}.", **hours)
            if held < 0
            else Text("GPUs would have been held for {hours} GPU-hours more{share}.", **hours)
        )
    for name, share in (("p50", Text("Half")), ("p95", Text("19 of 20"))):
        before, after = now["waits"][name], then["waits"][name]
        if before == after:
            continue
        if after is None:
            said.append(
                Text(
                    "{share} of the waits end within {old} now; then fewer would.",
                    share=share,
                    old=duration(before),
                )
            )
        elif before is None:
            said.append(
                Text(
                    "{share} of the waits would end within {new}; now fewer do.",
                    share=share,
                    new=duration(after),
                )
            )
        else:
            said.append(
                Text(
                    "{share} of the waits would have been over within {new} instead of {old}.",
                    share=share,
                    new=duration(after),
                    old=duration(before),
                )
            )
    for name, what in (
        ("reclaims", Text("GPUs would have been released as idle")),
        ("false_reclaims", Text("of them would have been wanted again within a minute")),
    ):
        if now[name] != then[name]:
            figures = {"new": then[name], "old": now[name]}
            said.append(Text("{new} {what} instead of {old}.", what=what, **figures))
    return said or [Text("Nothing would have been different.")]


def main() -> None:
    """Answer the one question that stands on the standard input."""
    asked = json.load(sys.stdin)
    policies = {name: document.parse(asked[name], 0) for name in (NOW, THEN)}
    devices = devices_from_json(asked["devices"])
    trace = TRACE.validate_python(asked["trace"])
    tried = replays(trace, policies, devices), trade_offs(trace, asked[NOW], devices)
    for each in chain.from_iterable(tried):
        sys.stdout.write(f"{json.dumps(each)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
