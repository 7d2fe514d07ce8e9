"""What another policy would have made of the same days: both replayed, with a sensitivity range.

Runs as a process of its own: a question on the standard input, a
line of JSON for each replay on the standard output, so that what is done by the time limit counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpulease.policy import document
from gpulease.policy.model import Device, PolicyDocument
from gpulease.simulate import codec
from gpulease.simulate.assumptions import Assumptions
from gpulease.simulate.trace import Trace
from gpulease.simulate.world import replay
from gpulease.texts import Text

ASSUMPTION: Final = Text(
    "People are assumed to behave as they did: the same GPU work with the same time to think"
    " between, a longer wait moving all that follows. Shorter time-outs may change that, so it is"
    " worked out again with half and with twice the time to think."
)
#: Factors of the time to think; the first is what is shown, the others are its sensitivity.
THINK: Final = (1.0, 0.5, 2.0)
NOW, THEN = "now", "then"
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
    for think in factors:
        for name, policy in policies.items():
            found = replay(trace, policy, devices, Assumptions(think=think), name=name)
            yield {"think": think, "name": name, "outcome": found.to_json()}


def answer(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the comparison that these replays make; ``None`` where not even one pair is whole.

    ``complete`` says whether every time to think was worked out.
    """
    by_factor: dict[float, dict[str, Any]] = {}
    for each in found:
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
                    old=_wait(before),
                )
            )
        elif before is None:
            said.append(
                Text(
                    "{share} of the waits would end within {new}; now fewer do.",
                    share=share,
                    new=_wait(after),
                )
            )
        else:
            said.append(
                Text(
                    "{share} of the waits would have been over within {new} instead of {old}.",
                    share=share,
                    new=_wait(after),
                    old=_wait(before),
                )
            )
    for name, what in (
        ("reclaims", Text("GPUs would have been taken back as idle")),
        ("false_reclaims", Text("of them would have been wanted again within a minute")),
    ):
        if now[name] != then[name]:
            figures = {"new": then[name], "old": now[name]}
            said.append(Text("{new} {what} instead of {old}.", what=what, **figures))
    return said or [Text("Nothing would have been different.")]


def _wait(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def main() -> None:
    """Answer the one question that stands on the standard input."""
    asked = json.load(sys.stdin)
    policies = {name: document.parse(asked[name], 0) for name in (NOW, THEN)}
    devices = codec.devices_from_json(asked["devices"])
    for each in replays(codec.trace_from_json(asked["trace"]), policies, devices):
        sys.stdout.write(f"{json.dumps(each)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
