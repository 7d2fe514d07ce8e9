"""The bodies of requests, as pydantic models: they validate, and they describe the API.

Owns what may be sent and its bounds.  What is answered stands in ``protocol``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpulease.policy.document import MAX_TEXT
from gpulease.protocol.reports import Activity, KernelReport

#: A Z85 text of 32 bytes, as CurveZMQ keys are written.
Z85Key = Annotated[
    str, Field(min_length=40, max_length=40, pattern=r"^[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}$")
]
Name = Annotated[str, Field(max_length=255)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


#: Home kernels' keys that one lease's supervisor admits.
KEYS_MAX = 500


def _cut(length: int) -> BeforeValidator:
    return BeforeValidator(lambda value: value[:length] if isinstance(value, str) else value)


class Body(BaseModel):
    """Unknown members are refused: a misspelt one would otherwise be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


#: Of packages.
Versions = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=64)]],
    Field(max_length=50),
]


class EnvironmentBody(Body):
    """What the notebook that asks runs."""

    python: Annotated[str, Field(max_length=32)]
    executable: Annotated[str, Field(max_length=4096)]
    packages: Versions


class AskBody(Body):
    """Ask for GPUs: ``POST leases``."""

    gpu_class: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    count: Annotated[int, Field(ge=1, le=64)] = 1
    seconds: Annotated[float, Field(gt=0, le=30 * 86400)] | None = None
    server: Name | None = None
    user: Name | None = None
    kernel_id: Annotated[str, Field(max_length=128)] | None = None
    origin: Literal["page", "magic", "lab", "cli"] = "magic"
    in_quota_only: bool = False
    needs: Annotated[str, Field(max_length=100)] = ""
    project: Name | None = None
    environment: EnvironmentBody | None = None


class EndBody(Body):
    """Return, withdraw or end: ``DELETE leases/{id}``; ``note`` is what its holder reads.

    ``force``: return it though a cell runs or some variables cannot come home.
    """

    note: Annotated[str, Field(max_length=500)] = ""
    force: bool = False


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
    text: Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S")]
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


class SubmitBody(Body):
    """Run a whole notebook: ``POST runs``; ``array`` is written ``1-20``."""

    notebook: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+\.ipynb$")]
    gpu_class: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    count: Annotated[int, Field(ge=1, le=64)] = 1
    seconds: Annotated[float, Field(gt=0, le=30 * 86400)] | None = None
    project: Name | None = None
    parameters: Annotated[
        dict[Annotated[str, Field(max_length=100)], _Parameter], Field(max_length=100)
    ] = {}
    after: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=100)] = []
    array: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    on_loss: Literal["fail", "restart"] = "fail"


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
    ] = "running"
    cells: Annotated[int, Field(ge=0, le=10**6)] = 0
    done: Annotated[int, Field(ge=0, le=10**6)] = 0
    note: Annotated[str, Field(max_length=2000)] = ""
    opens: Annotated[str, Field(max_length=4096)] = ""


class Blocker(BaseModel):
    """A variable that cannot go home; long words are cut, for the answer matters more."""

    name: Annotated[str, _cut(200)] = ""
    reason: Annotated[str, _cut(64)] = ""
    sentence: Annotated[str, _cut(400)] = ""
    size: int | None = None


class FromSupervisor(BaseModel):
    """A message of the supervisor channel; members beyond these are left for newer versions."""

    type: Literal["hello", "activity", "admitted", "drained", "bye"]
    address: Annotated[str, Field(max_length=255)] = ""
    public_key: Annotated[str, Field(max_length=40)] = ""
    protocol: Annotated[str, Field(max_length=16)] = ""
    python: Annotated[str, Field(max_length=32)] = ""
    executable: Annotated[str, Field(max_length=4096)] = ""
    packages: Versions = {}
    pid: int | None = None
    attempt: int | None = None
    samples: Annotated[list[Activity], Field(max_length=600)] = []
    result: Literal["", "done", "blocked", "parked"] = ""
    blockers: list[Blocker] = []
    parked: Annotated[int, Field(ge=0)] = 0
    client_key: Annotated[str, Field(max_length=40)] = ""
    keys: Annotated[
        dict[Z85Key, Annotated[str, Field(max_length=128)]], Field(max_length=KEYS_MAX)
    ] = {}
    kernel_id: Annotated[str, Field(max_length=128)] = ""
    reason: Annotated[str, Field(max_length=64)] = ""
    detail: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        missing = [name for name in _NEEDED.get(self.type, ()) if not getattr(self, name)]
        if missing:
            raise ValueError(f"{self.type} needs {', '.join(missing)}")
        return self


_NEEDED = {
    "hello": ("address", "public_key", "protocol"),
    "admitted": ("client_key",),
    "drained": ("result",),
}


class FromServer(BaseModel):
    """A message that a notebook server sends on its events channel."""

    type: Literal["kernels", "supervisor"]
    kernels: Annotated[list[KernelReport], Field(max_length=500)] = []
    lease_id: Annotated[str, Field(max_length=64)] = ""
    attempt: int = 0
    state: Literal["", "started", "failed", "exited"] = ""
    detail: Annotated[str, Field(max_length=2000)] = ""
    pids: Annotated[list[int], Field(max_length=1000)] = []
