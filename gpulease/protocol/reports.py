"""What supervisors and notebook servers report to the service, each member with its bounds.

Kernels import none of it: the bounds are of a package that they would load for nothing.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, NotRequired

from annotated_types import Interval, MaxLen
from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.protocol.bounds import Count, Instant


class Activity(TypedDict):
    """Supervisor to service: what lives in the lease, one a second, batched."""

    at: Instant
    cells: Count  # user cells that ran since the sample before (sleep and input() included)
    threads: Count  # threads the user started, alive
    processes: Count  # processes the user started, alive
    tasks: NotRequired[Count]  # tasks the user left on a companion's loop, alive
    # 0..1: peak share of one core that user code used; gpulease's own work left out.
    use: Annotated[float, Interval(ge=0, lt=inf)]
    transfers: bool  # gpulease itself moved values in this second


class KernelReport(TypedDict):
    """Server to service over the events websocket (``type: kernels``): the server's kernels."""

    id: Annotated[str, MaxLen(128)]
    # When a cell ran last, ISO; the newest is the page's kernel.
    last_cell: Annotated[str, MaxLen(40)] | None
    busy: bool
    notebook: NotRequired[Annotated[str, MaxLen(1000)]]  # its path on the server, "" for none
    # Those that are for it.
    leases: NotRequired[Annotated[list[Annotated[str, MaxLen(64)]], MaxLen(100)]]
