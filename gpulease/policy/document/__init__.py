"""The policy document: YAML in, ``PolicyDocument`` or findings out; what a change would mean."""

from __future__ import annotations

from gpulease.policy.document.nodes import MAX_TEXT, Finding
from gpulease.policy.document.reader import (
    CLASS,
    LIMITS,
    POOL,
    TOP,
    check,
    default_document,
    dump,
    parse,
    with_time_outs,
)

__all__ = [
    "CLASS",
    "LIMITS",
    "MAX_TEXT",
    "POOL",
    "TOP",
    "Finding",
    "check",
    "default_document",
    "dump",
    "parse",
    "with_time_outs",
]
