"""A run as JSON values, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from gpulease.runs.model import OnLoss, Outcome, Run, RunState

_READ: dict[str, Any] = {
    **dict.fromkeys(
        ("created", "state_since", "not_before", "started", "ended"), datetime.fromisoformat
    ),
    **dict.fromkeys(("after", "groups"), tuple),
    "state": RunState,
    "outcome": Outcome,
    "on_loss": OnLoss,
}


def to_json(run: Run) -> dict[str, Any]:
    """Return the run as JSON values."""
    return {each.name: _plain(getattr(run, each.name)) for each in fields(Run)}


def from_json(record: Mapping[str, Any]) -> Run:
    """Return the run; members that this version lacks are left out, new ones get defaults."""
    known = {each.name for each in fields(Run)}
    return Run(**{name: _typed(name, record[name]) for name in record if name in known})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _typed(name: str, value: Any) -> Any:
    read = _READ.get(name)
    return value if value is None or read is None else read(value)
