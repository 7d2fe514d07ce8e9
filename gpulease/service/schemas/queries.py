"""What may stand in an address's query, as pydantic models: they validate and describe it."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal, Self
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from gpulease.policy.model import LeaseState
from gpulease.texts import Text

#: Items of one page at most.
PAGE_MAX = 200


def _digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError(Text("it must be a whole number, in digits"))
    return value


def _zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError(Text("it is no time zone"))
    return value


def _by(value: str) -> str:
    names = value.split(",")
    if not set(names) <= GROUPS or len(set(names)) < len(names):
        raise ValueError(
            Text("it must be some of {names}, with commas", names=", ".join(sorted(GROUPS)))
        )
    return value


def _written_out(value: Any) -> Any:
    """Refuse a bare number, which pydantic would take for seconds since 1970."""
    if isinstance(value, str) and not re.match(r"\d{4}-\d\d-\d\d[Tt ]", value):
        raise ValueError(Text("it must be a time with its offset, such as 2026-03-02T14:00:00Z"))
    return value


def _state(value: str) -> str:
    if value not in STATES:
        raise ValueError(
            Text(
                "there is no such state; there are {names}", names=", ".join(sorted(STATES - {""}))
            )
        )
    return value


STATES = frozenset({"", "live", *LeaseState})
#: By what use can be summed up.
GROUPS = frozenset({"project", "person", "class", "day"})
_By = Annotated[
    str,
    AfterValidator(_by),
    Field(json_schema_extra={"enum": ["project", "person", "class", "day", "project,person"]}),
]
_Day = Annotated[date, Field(ge=date(2000, 1, 1), le=date(2199, 12, 31))]
_Zone = Annotated[
    str, AfterValidator(_zone), Field(json_schema_extra={"enum": ["UTC", "Europe/Berlin"]})
]
_Flag = Literal["", "0", "1", "false", "true"]
_State = Annotated[
    str, AfterValidator(_state), Field(json_schema_extra={"enum": sorted(map(str, STATES))})
]


class Query(BaseModel):
    """Unknown members are refused: a misspelt one would otherwise be ignored in silence."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class PageQuery(Query):
    """A page of a list."""

    offset: Annotated[int, Field(ge=0, le=10**9), BeforeValidator(_digits)] = 0
    limit: Annotated[int, Field(ge=0, le=PAGE_MAX), BeforeValidator(_digits)] = 50


class AuditQuery(PageQuery):
    """Words that a change has in a name, reason, note or its lease's id; "" is every one."""

    q: Annotated[str, Field(max_length=200)] = ""


class LeasesQuery(PageQuery):
    """Which leases: ``mine`` are the asker's own, ``live`` those that have not ended."""

    state: _State = ""
    mine: _Flag = ""


class RunsQuery(PageQuery):
    """Which runs: ``mine`` are the asker's own."""

    mine: _Flag = ""


class GroupQuery(Query):
    """Of which group; "" is every one."""

    group: Annotated[str, Field(max_length=255)] = ""


class MembersQuery(Query):
    """Of which group."""

    group: Annotated[str, Field(min_length=1, max_length=255)]


class ReservationsQuery(PageQuery, GroupQuery):
    """Which reservations; ``since`` shows every window that ends after it."""

    cancelled: _Flag = ""
    since: Annotated[AwareDatetime, BeforeValidator(_written_out)] | None = None


class EventsQuery(Query):
    """Where to go on; ``_xsrf`` is the token of the page that opens it, ``language`` the page's."""

    resume: Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_digits)] | None = None
    page_token: Annotated[str, Field(alias="_xsrf", max_length=500)] = ""
    language: Literal["en", "de", "fr"] = "en"


def is_set(flag: str) -> bool:
    """Tell whether a flag is on."""
    return flag in {"1", "true"}


class TimelineQuery(Query):
    """The last so many hours."""

    hours: Annotated[int, Field(ge=1, le=90 * 24), BeforeValidator(_digits)] = 24


class UsageQuery(Query):
    """What was used from one day to another (of ``zone``), both included, by what."""

    by: _By = "project"
    since: _Day | None = None
    until: _Day | None = None
    zone: _Zone = "UTC"

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ValueError(Text("since must not be after until"))
        return self
