"""What a node agent may post, as pydantic models with their bounds.

Owns the check of ``POST agents/batches``.  Members beyond these are left for newer agents; the
shapes as the agent writes them stand in ``protocol``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gpulease.policy.evidence.quarantine import KINDS

#: Batches of one post; an agent that was alone for long sends several posts.
BATCHES_MAX = 60
_SECONDS_MAX = 8192


def _instant(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("a time needs its offset")
    return value


def _kind(value: str) -> str:
    if value not in KINDS:
        raise ValueError("no such kind of incident")
    return value


Instant = Annotated[str, Field(max_length=40), AfterValidator(_instant)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Identifier = Annotated[str, Field(min_length=1, max_length=128)]
Bytes = Annotated[int, Field(ge=0, le=2**53)]
_Word = Annotated[str, Field(max_length=64)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class Holder(_Part):
    """One device in the hands of one container."""

    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    pod: Annotated[str, Field(min_length=1, max_length=253)]
    container: Annotated[str, Field(max_length=253)]
    resource: Annotated[str, Field(max_length=253)] = ""
    device: Identifier
    driver: Annotated[str, Field(max_length=253)] = ""
    pool: Annotated[str, Field(max_length=253)] = ""


class Incident(_Part):
    """A fault that a device reported."""

    kind: Annotated[_Word, AfterValidator(_kind)]
    at: Instant
    until: Instant | None = None
    xid: Annotated[int, Field(ge=0, le=2**32)] | None = None


class Device(_Part):
    """One device of the node."""

    uuid: Identifier
    parent: Annotated[str, Field(max_length=128)] = ""
    index: Annotated[int, Field(ge=0, le=4096)]
    name: Annotated[str, Field(max_length=128)] = ""
    memory: Bytes = 0
    level: Literal["process", "device", "cells"]
    offered: bool = True
    incidents: Annotated[list[Incident], Field(max_length=64)] = []


class Second(_Part):
    """One device in one second."""

    at: Instant
    device: Identifier
    use: Share | None
    gap: _Word = ""
    memory: Bytes | None = None
    power: Annotated[float, Field(ge=0, le=1e5, allow_inf_nan=False)] | None = None
    pods: Annotated[dict[Identifier, Share], Field(max_length=256)] = {}
    others: Share = 0.0
    unplaced: Share = 0.0

    @model_validator(mode="after")
    def _gap_is_told(self) -> Second:
        if self.use is None and not self.gap:
            raise ValueError("a second without use needs its gap")
        return self


class Batch(_Part):
    """Some seconds of one node."""

    sequence: Annotated[int, Field(ge=1, le=2**53)]
    at: Instant
    devices: Annotated[list[Device], Field(max_length=512)]
    holders: Annotated[list[Holder], Field(max_length=4096)] | None = None
    seconds: Annotated[list[Second], Field(max_length=_SECONDS_MAX)] = []
    problem: Annotated[str, Field(max_length=500)] = ""


class AgentPost(_Part):
    """What a node agent saw since its last post: ``POST agents/batches``."""

    protocol: Annotated[str, Field(max_length=16)]
    run: Annotated[str, Field(min_length=8, max_length=64)]
    sent: Instant
    batches: Annotated[list[Batch], Field(min_length=1, max_length=BATCHES_MAX)]
