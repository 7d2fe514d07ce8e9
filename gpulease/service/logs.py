"""Structured logs: one line an event, JSON, with lease, server and reference ids.

Owns the line's shape and the rule that no credential leaves the process.  Pass ids as
``extra={"lease": ..., "server": ..., "ref": ...}``.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
from datetime import UTC, datetime

_FIELDS = ("lease", "user", "server", "ref", "reason", "action", "attempt")

#: What looks like a credential: after a word that announces one, or a long random string.
_SECRETS = (
    re.compile(r"(?i)\b(token|bearer)[ :=]+['\"]?[\w.~+/=-]{8,}"),
    re.compile(r"(?i)\b(code|state|_xsrf|secret|password|api_token)=[^\s&'\"]+"),
    re.compile(r"()\b[0-9a-fA-F]{32,}\b"),
    re.compile(r"()\b[A-Za-z0-9_-]{43,}={0,2}"),
    re.compile(r"(://[^/\s:@]+):[^@/\s]+@"),
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


def reference() -> str:
    """Return a fresh reference id: what a person quotes and an admin searches for."""
    return secrets.token_hex(5)


def configure(level: str = "INFO") -> None:
    """Send every record of the process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # One line an event: tornado's line a request says nothing that the metrics do not.
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    # The hub's client logs session ids at INFO, and a warning for each request of plain HTTP.
    logging.getLogger("tornado.application").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)
