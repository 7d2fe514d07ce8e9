"""The policy document: YAML in, ``PolicyDocument`` or findings out; what a change would mean."""

from __future__ import annotations

from gpulease.policy.document.reader import (
    check,
    default_document,
    dump,
    form,
    json_schema,
    parse,
    with_time_outs,
)
from gpulease.policy.document.source import MAX_TEXT, Finding

__all__ = [
    "MAX_TEXT",
    "Finding",
    "check",
    "default_document",
    "dump",
    "form",
    "json_schema",
    "parse",
    "with_time_outs",
]
