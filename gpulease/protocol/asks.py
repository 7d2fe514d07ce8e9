"""``POST api/leases``: what is asked for, each member with its bounds.

Kernels import none of it but for types: the bounds are of a package that they would load for
nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval, Len, MaxLen
from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

Name = Annotated[str, MaxLen(255)]


Version = Annotated[str, MaxLen(32)]
Path = Annotated[str, MaxLen(4096)]
Packages = Annotated[dict[Annotated[str, MaxLen(64)], Annotated[str, MaxLen(64)]], MaxLen(50)]


class Environment(TypedDict):
    """What a notebook or a lease's supervisor runs."""

    python: Version  # "3.11.7"
    executable: Path  # of its interpreter
    packages: Packages  # versions of packages whose objects travel, where installed


class AskBody(TypedDict, total=False):
    """Ask for GPUs."""

    gpu_class: Annotated[str, Len(1, 64)] | None  # None: the policy's default class
    count: Annotated[int, Interval(ge=1, le=64)]  # of all nodes together; 1 for each
    min_count: Annotated[int, Interval(ge=1, le=64)] | None  # it can live with so few; None: all
    # Of a class that is a part of a card: it can live with so many percent of one; None: all.
    at_least: Annotated[int, Interval(ge=1, le=100)] | None
    nodes: Annotated[int, Interval(ge=1, le=64)]  # 1: into so many equal parts it is divided
    seconds: Annotated[float, Interval(gt=0, le=30 * 86400)] | None  # how long it is wanted
    server: Name | None  # a page names it; a server's token implies it
    user: Name | None  # admins only; else the token's user
    kernel_id: Annotated[str, MaxLen(128)] | None
    origin: Literal["page", "magic", "lab", "cli"]  # magic
    in_quota_only: bool
    needs: Annotated[str, MaxLen(100)]  # of each GPU beyond its class: memory>=20GiB, cc>=8.0, ecc
    project: Name | None  # what it is charged to; None: the first with budget left
    environment: Environment | None  # of the notebook that asks, where one does
