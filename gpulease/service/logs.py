"""Structured logs: one line an event, JSON, with lease, server and reference ids.

No credential leaves the process in a line.  Pass ids as
``extra={"lease": ..., "server": ..., "ref": ...}``.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

_FIELDS = ("lease", "user", "server", "ref", "reason", "action", "attempt", "repeated")
_FIGURES = re.compile(r"\d+")
#: Seconds in which an event that repeats is said once.
_WINDOW = 60.0
#: So many different events are kept in mind; a flood of new ones is said as it comes.
_EVENTS = 1000

#: What a credential is called, and how its value may be written: in quotes, escaped, or bare.
_NAMES = r"token|secret|passw(?:or)?d|passphrase|credentials?|_xsrf|(?:api|access|private)[_-]?key"
_VALUE = r"""(?:\\"[^"]*?\\"|b?"(?:\\.|[^"\\])*"?|b?'(?:\\.|[^'\\])*'?|[^\s&'"]+)"""
#: What looks like a credential; its first group stays.
_SECRETS = (
    # The rest of a header.
    re.compile(r"(?i)(\bcookie['\"]?:\s*)[^\r\n]+"),
    re.compile(r"(?i)(\bauthorization['\"]?\s*[:=,]\s*['\"]?(?:\w+ +)?)[^\s'\"]+"),
    # After a word that announces one.
    re.compile(rf"(?i)((?:{_NAMES})\\?['\"]?\s*[:=]\s*){_VALUE}"),
    re.compile(r"(?i)\b((?:code|state|sig|signature|pw)=)[^\s&'\"]+"),
    re.compile(r"(?i)\b((?:token|bearer)[ :=]+['\"]?)[\w.~+/=-]{8,}"),
    # No word: a letter case that changes within, a figure or a sign.
    re.compile(r"\b([Bb]asic +)(?=\S*(?:[a-z][A-Z]|[\d+/=]))[\w+/=-]{4,}"),
    # By the first letters that issuers give theirs.
    re.compile(
        r"()\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abeprs]-|npm_|pypi-|dckr_pat_|AIza)"
        r"[\w-]{16,}"
    ),
    re.compile(r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"()\beyJ[\w-]+\.[\w-]+\.[\w-]*"),
    # A long random string.
    re.compile(r"()\b[0-9a-fA-F]{32,}\b"),
    re.compile(r"()(?=[_-]*[A-Za-z0-9])[A-Za-z0-9_-]{43,}={0,2}"),  # no line of dashes
    # An address's login; a port and a path in which somebody's name has an @ are none.
    re.compile(r"(://[^/\s:@'\"]*:)(?!\d+/)[^\s'\"]{1,256}(?=@)"),
    re.compile(r"(://)[^/\s:@'\"]+(?=@)"),
)


def redact(text: str) -> str:
    """Return the text without what looks like a credential."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: f"{match.group(1)}[redacted]", text)
    return text


class JSONLines(logging.Formatter):
    """Formats each record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": redact(record.getMessage()),
        }
        for name in _FIELDS:
            value = getattr(record, name, None)
            if value not in (None, ""):
                line[name] = redact(value) if isinstance(value, str) else value
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


@dataclass
class _Event:
    """One event that was said: until when it is not said again, and what came meanwhile."""

    until: float
    repeated: int = 0
    last: logging.LogRecord | None = None


class OncePerMinute(logging.StreamHandler[TextIO]):
    """Writes an event once a minute, the next time with ``repeated``: how often it came meanwhile.

    An event is what is said with its level and what it is about; of a warning or an error the
    figures in it do not make another one.  What repeated and then stopped is written when the
    next record of any kind comes after its minute.

    Args:
        stream: where lines go.
        clock: monotonic seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._said: dict[tuple[object, ...], _Event] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it; the handler's lock is held."""
        now = self._clock()
        self._finish(now)
        key = _key(record)
        known = self._said.get(key)
        if known is not None:
            known.repeated, known.last = known.repeated + 1, record
            return
        if len(self._said) < _EVENTS:
            self._said[key] = _Event(now + _WINDOW)
        super().emit(record)

    def close(self) -> None:
        """Write what was counted."""
        self._finish(float("inf"))
        super().close()

    def _finish(self, now: float) -> None:
        """Write the last record of each event whose minute is over."""
        # The oldest stand first: each is put behind when it is said anew.
        while self._said:
            key, event = next(iter(self._said.items()))
            if event.until > now:
                return
            del self._said[key]
            if event.last is not None:
                event.last.repeated = event.repeated
                self._said[key] = _Event(now + _WINDOW)
                super().emit(event.last)


def _key(record: logging.LogRecord) -> tuple[object, ...]:
    about = tuple(getattr(record, name, None) for name in ("lease", "user", "server", "reason"))
    text = record.getMessage()
    if record.levelno >= logging.WARNING:
        text = _FIGURES.sub("0", text)
    fault = record.exc_info[0] if record.exc_info else None
    return (record.name, record.levelno, text, fault, *about)


def reference() -> str:
    """Return a fresh reference id: what a person quotes and an admin searches for."""
    return secrets.token_hex(5)


def configure(level: str = "INFO") -> None:
    """Send every record of the process to standard error as JSON lines."""
    handler = OncePerMinute(sys.stderr)
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # One line an event: tornado's line a request says nothing that the metrics do not.
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    # The hub's client logs session ids at INFO, and a warning for each request of plain HTTP.
    logging.getLogger("tornado.application").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)
