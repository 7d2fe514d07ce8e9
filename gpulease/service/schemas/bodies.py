"""What is sent to the service in a body or a query, as pydantic models.

They validate it, and they describe the API.  What programs of gpulease send too, and what is
answered, stands in ``protocol``.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    field_validator,
    model_validator,
    with_config,
)

from gpulease.policy.document import MAX_TEXT
from gpulease.policy.forms import zones
from gpulease.policy.model import LeaseState
from gpulease.policy.quarantine import KINDS
from gpulease.protocol.agents import AgentPost
from gpulease.protocol.asks import AskBody
from gpulease.service.schemas.problems import form
from gpulease.texts import Said, Text

#: A Z85 text of 32 bytes, as CurveZMQ keys are written.
Z85Key = Annotated[
    str, Field(min_length=40, max_length=40, pattern=r"^[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$")
]
Name = Annotated[str, Field(max_length=255)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class Body(BaseModel):
    """Unknown members are refused: a misspelt one would otherwise be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


with_config(ConfigDict(extra="forbid", strict=True))(AskBody)


class EndBody(Body):
    """Return, withdraw or end: ``DELETE leases/{id}``; ``note`` is what its holder reads.

    ``force``: return it though a cell runs or some variables cannot be copied to the notebook.
    """

    note: Annotated[str, Field(max_length=500)] = ""
    force: bool = False


class EndGroupBody(Body):
    """End every lease of a group's members: ``DELETE leases``; ``note`` is what they read."""

    group: Annotated[str, Field(min_length=1, max_length=255)]
    note: Annotated[str, form(r"\S", Text("it must not be empty"), min_length=1, max_length=500)]


class EmptyBody(Body):
    """Nothing to say: ``POST leases/{id}/keep``."""


class ConnectionBody(Body):
    """A home kernel's public key: ``POST leases/{id}/connections``."""

    client_key: Z85Key
    kernel_id: Annotated[str, Field(min_length=1, max_length=128)]


class PolicyBody(Body):
    """A policy document: ``PUT policy``, ``POST policy/check``.

    ``base_version`` is the version it was edited from: another one in force means that somebody
    else saved meanwhile.
    """

    text: Annotated[str, Field(max_length=MAX_TEXT)]
    base_version: int | None = None


class MessageBody(Body):
    """Tell the members of a group: ``POST messages``; ``group`` is "" for everybody."""

    group: Annotated[str, Field(max_length=255)] = ""
    text: Annotated[str, form(r"\S", Text("it must not be empty"), min_length=1, max_length=500)]
    seconds: Annotated[float, Field(ge=60, le=7 * 86400)] = 3600.0


class TimeOutsBody(Body):
    """Time-outs to be set in the policy in force: ``POST policy/time-outs``; nothing is saved.

    Values are written as in the document: ``5m``, ``3``.
    """

    values: Annotated[
        dict[
            Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")],
            Annotated[str, Field(pattern=r"^[0-9a-z.]{1,32}$")],
        ],
        Field(max_length=64),
    ]


class WhatIfBody(Body):
    """A policy document to try on the last days: ``POST whatif``."""

    text: Annotated[str, Field(max_length=MAX_TEXT)]
    days: Annotated[float, Field(gt=0, le=31, allow_inf_nan=False)] = 7


_Parameter = Annotated[str, Field(max_length=10_000)] | bool | int | _Finite | None
#: Characters of a run's parameters together: each run of an array keeps them for months.
PARAMETERS_MAX = 16_000


def _short(found: dict[str, _Parameter]) -> dict[str, _Parameter]:
    if sum(len(f"{name}{value}") for name, value in found.items()) > PARAMETERS_MAX:
        raise ValueError(Text("together they must have at most {n} characters", n=PARAMETERS_MAX))
    return found


class SubmitBody(Body):
    """Run a whole notebook: ``POST runs``; ``array`` is written ``1-20``."""

    notebook: Annotated[
        str,
        form(
            r"^[^\x00]+\.ipynb$",
            Text("it must be the path of a notebook (.ipynb)"),
            min_length=1,
            max_length=1000,
        ),
        Said("Its path as your notebook server sees it."),
    ]
    gpu_class: Annotated[
        Annotated[str, Field(min_length=1, max_length=64)] | None,
        Said("Class of its GPU cells that name none."),
    ] = None
    count: Annotated[Annotated[int, Field(ge=1, le=64)] | None, Said("GPUs of such cells.")] = None
    min_count: Annotated[
        Annotated[int, Field(ge=1, le=64)] | None, Said("The minimum that they start with.")
    ] = None
    at_least: Annotated[
        Annotated[int, Field(ge=1, le=100)] | None,
        Said("Of a part of a card: the percent that they continue with."),
    ] = None
    nodes: Annotated[int, Field(ge=1, le=64), Said("Nodes of such cells.")] = 1
    seconds: Annotated[
        Annotated[float, Field(gt=0, le=30 * 86400)] | None, Said("How long they may have a GPU.")
    ] = None
    project: Annotated[Name | None, Said("The project that they are charged to.")] = None
    parameters: Annotated[
        dict[Annotated[str, Field(max_length=100)], _Parameter],
        Field(max_length=100),
        AfterValidator(_short),
        Said("Values by name, in a cell after the one tagged parameters; 16,000 characters."),
    ] = {}
    after: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(max_length=100),
        Said("Runs or arrays that must have succeeded before; else it is skipped."),
    ] = []
    array: Annotated[
        Annotated[str, Field(min_length=1, max_length=200)] | None,
        Said("1-20 or 1,3,5-7: a run for each number, at most 200, as array_index."),
    ] = None
    on_loss: Annotated[Literal["fail", "restart"], Said("What follows when its kernel dies.")] = (
        "fail"
    )


class RunReport(Body):
    """What a run's own server says of it: ``POST runs/{id}/reports``."""

    boot: Annotated[str, Field(min_length=1, max_length=64)]
    state: Literal[
        "running",
        "succeeded",
        "notebook_error",
        "gpu_time_over",
        "unreadable",
        "kernel_died",
        "interrupted",
        "gpu_lost",
    ] = "running"
    cells: Annotated[int, Field(ge=0, le=10**6)] = 0
    done: Annotated[int, Field(ge=0, le=10**6)] = 0
    note: Annotated[str, Field(max_length=2000)] = ""
    opens: Annotated[str, Field(max_length=4096)] = ""


class AgentPostBody(RootModel[AgentPost]):
    """What a node agent saw since its last post: ``POST agents/batches``."""

    model_config = ConfigDict(strict=True, defer_build=True)

    @field_validator("root")
    @classmethod
    def _consistent(cls, post: AgentPost) -> AgentPost:
        for batch in post["batches"]:
            if any(each["use"] is None and not each.get("gap") for each in batch["seconds"]):
                raise ValueError("a second without use needs its gap")
            kinds = {fault["kind"] for each in batch["devices"] for fault in each["incidents"]}
            if not kinds <= KINDS.keys():
                raise ValueError("no such kind of incident")
        return post


#: Items of one page at most.
PAGE_MAX = 200


def _digits(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError(Text("it must be a whole number, in digits"))
    return value


def _zone(value: str) -> str:
    if value not in zones():
        raise ValueError(Text("it is not a time zone"))
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
        raise ValueError(Text("it must be one of {names}", names=", ".join(sorted(STATES - {""}))))
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
    """Which leases: ``mine`` are the asker's own, ``live`` those that have not ended.

    ``user``, ``project`` and ``gpu_class`` narrow the list to theirs; "" is every one.
    """

    state: _State = ""
    mine: _Flag = ""
    user: Annotated[str, Field(max_length=255)] = ""
    project: Annotated[str, Field(max_length=255)] = ""
    gpu_class: Annotated[str, Field(max_length=64)] = ""


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
