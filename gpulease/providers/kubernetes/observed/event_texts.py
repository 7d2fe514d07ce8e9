"""What Kubernetes says in events and statuses: its words, cut to a size, and its times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

Manifest = Mapping[str, Any]

_MOST_DETAIL: Final = 500


def words_of(event: Manifest) -> str:
    """Return what an event says."""
    return sentence_of(event.get("reason") or "", event.get("message") or event.get("note"))


def sentence_of(reason: str, message: str | None) -> str:
    """Return a reason with its message, where it has one."""
    return cut(f"{reason}: {message}" if reason and message else message or reason)


def cut(text: str) -> str:
    """Return a text in one line, at most 500 letters of it."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_DETAIL else f"{flat[: _MOST_DETAIL - 1]}…"


def first_seen(event: Manifest) -> str | None:
    """Return when something happened for the first time, as the API writes it."""
    return (
        event.get("firstTimestamp")
        or event.get("deprecatedFirstTimestamp")
        or event.get("eventTime")
        or event.get("lastTimestamp")
        or (event.get("metadata") or {}).get("creationTimestamp")
    )


def last_seen(event: Manifest) -> str | None:
    """Return when something happened for the last time, as the API writes it."""
    series = event.get("series") or {}
    return (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or first_seen(event)
    )


def when_last(event: Manifest) -> datetime:
    """Return the same as a time, to sort by."""
    return time_of(last_seen(event)) or datetime.min.replace(tzinfo=UTC)


def time_of(text: str | None) -> datetime | None:
    """Return an API time (RFC 3339 in UTC), ``None`` where there is none."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
