"""``POST api/leases``: what is asked for, each member with its bounds.

Kernels import none of it but for types: the bounds are of a package that they would load for
nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval, Len, MaxLen
from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.texts import Said

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

    gpu_class: Annotated[
        Annotated[str, Len(1, 64)] | None, Said("The class; by default the policy's.")
    ]
    count: Annotated[
        int, Interval(ge=1, le=64), Said("Devices of all nodes together; by default one each.")
    ]
    min_count: Annotated[
        Annotated[int, Interval(ge=1, le=64)] | None,
        Said("The minimum that it starts or continues with; by default all."),
    ]
    at_least: Annotated[
        Annotated[int, Interval(ge=1, le=100)] | None,
        Said("Of a part of a card: the percent of a card that it can continue with."),
    ]
    nodes: Annotated[
        int, Interval(ge=1, le=64), Said("Into how many equal parts the devices are divided.")
    ]
    seconds: Annotated[
        Annotated[float, Interval(gt=0, le=30 * 86400)] | None,
        Said("How long it is wanted; by default hard_length."),
    ]
    server: Annotated[
        Name | None, Said('The server it is for, "" is the default one; a server asks for itself.')
    ]
    user: Annotated[Name | None, Said("Admins only: for whom; by default the token's user.")]
    kernel_id: Annotated[Annotated[str, MaxLen(128)] | None, Said("The kernel that asks.")]
    origin: Annotated[Literal["page", "magic", "lab", "cli"], Said("Where the ask came from.")]
    in_quota_only: Annotated[
        bool, Said("Only from what is guaranteed to the project; nobody takes it back.")
    ]
    needs: Annotated[
        str, MaxLen(100), Said("What each GPU must have: memory>=20GiB, cc>=8.0, ecc.")
    ]
    project: Annotated[
        Name | None, Said("The project it is charged to; by default the first with budget left.")
    ]
    environment: Annotated[
        Environment | None, Said("What the notebook runs; one that does not fit is refused.")
    ]
