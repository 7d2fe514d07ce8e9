"""Kinds of members that several conversations have, with their bounds."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from annotated_types import Interval, MaxLen, Predicate


def has_offset(text: str) -> bool:
    """Whether an ISO 8601 time says its offset.

    Raises:
        ValueError: it is no time.
    """
    return datetime.fromisoformat(text).tzinfo is not None


def is_z85(text: str) -> bool:
    """Whether a text is written as CurveZMQ keys are."""
    return re.fullmatch(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]*", text) is not None


Instant = Annotated[str, MaxLen(40), Predicate(has_offset)]
Share = Annotated[float, Interval(ge=0, le=1)]
Count = Annotated[int, Interval(ge=0)]
