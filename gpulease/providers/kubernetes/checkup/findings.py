"""What a look at an installation finds: the noun that its checks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "wrong", "unknown"]


@dataclass(frozen=True)
class Result:
    """One answer: which check, how it stands, in a sentence, and what to do where it is wrong."""

    check: str
    state: State
    sentence: str
    next_step: str = ""
