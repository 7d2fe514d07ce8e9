"""A trace and what it is replayed on as JSON values: what is handed to a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import inf, isfinite
from typing import Any

from gpulease.policy.calendar import reservation as calendar
from gpulease.policy.model import Device
from gpulease.simulate.trace import Burst, Session, Trace


def trace_to_json(trace: Trace) -> dict[str, Any]:
    """Return a trace as JSON values."""
    return {
        "begin": trace.begin.isoformat(),
        "length": trace.length,
        "sessions": [
            {
                **{name: getattr(each, name) for name in _PLAIN},
                "bursts": [[burst.think, burst.busy] for burst in each.bursts],
                "groups": list(each.groups),
                "patience": each.patience if isfinite(each.patience) else None,
            }
            for each in trace.sessions
        ],
        "reservations": [calendar.to_json(each) for each in trace.reservations],
    }


_PLAIN = ("id", "user", "start", "project", "gpu_class", "count", "linger")


def trace_from_json(record: Mapping[str, Any]) -> Trace:
    """Return the trace of what ``trace_to_json`` gave."""
    return Trace(
        begin=datetime.fromisoformat(record["begin"]),
        length=record["length"],
        sessions=tuple(
            Session(
                **{name: each[name] for name in _PLAIN},
                bursts=tuple(Burst(think, busy) for think, busy in each["bursts"]),
                groups=tuple(each["groups"]),
                patience=inf if each["patience"] is None else each["patience"],
            )
            for each in record["sessions"]
        ),
        reservations=tuple(calendar.from_json(each) for each in record["reservations"]),
    )


def devices_to_json(devices: tuple[Device, ...]) -> list[dict[str, Any]]:
    """Return devices as JSON values: what a replay needs of them."""
    return [
        {
            "uuid": each.uuid,
            "pool": each.pool,
            "node": each.node,
            "serves": None if each.serves is None else list(each.serves),
            "card": each.card,
            "card_parts": each.card_parts,
        }
        for each in devices
    ]


def devices_from_json(record: list[dict[str, Any]]) -> tuple[Device, ...]:
    """Return the devices of what ``devices_to_json`` gave."""
    return tuple(
        Device(
            each["uuid"],
            each["pool"],
            node=each["node"],
            serves=None if each["serves"] is None else tuple(each["serves"]),
            card=each.get("card", ""),
            card_parts=each.get("card_parts", 0),
        )
        for each in record
    )
