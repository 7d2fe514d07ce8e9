"""What supervisors and notebook servers report to the service, each member with its bounds.

Kernels import none of it: the bounds are of a package that they would load for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Annotated, Literal, NotRequired, Required

from annotated_types import Interval, Len, MaxLen, Predicate
from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.protocol.asks import Packages, Path, Version
from gpulease.protocol.bounds import Count, Instant, is_z85
from gpulease.protocol.service import Blocker

#: Home kernels' keys that one lease's supervisor admits.
KEYS_MAX = 500

#: Characters of a language's name, such as ``de`` or ``fr-CA``.
LANGUAGE_MAX = 35

Z85Key = Annotated[str, Len(40, 40), Predicate(is_z85)]


class Activity(TypedDict):
    """Supervisor to service: what lives in the lease, one a second, batched."""

    at: Instant
    cells: Count  # user cells that ran since the sample before (sleep and input() included)
    threads: Count  # threads the user started, alive
    processes: Count  # processes the user started, alive
    tasks: NotRequired[Count]  # tasks the user left on a companion's loop, alive
    used: NotRequired[bool]  # a cell has run in the lease: a restarted service has not seen it
    # 0..1: peak share of one core that user code used; gpulease's own work left out.
    use: Annotated[float, Interval(ge=0, lt=inf)]
    transfers: bool  # gpulease itself moved values in this second


class FromSupervisor(TypedDict, total=False):
    """One message of a supervisor; the members that each type carries:

    * ``hello``: address, public_key, protocol, pid, attempt, keys (those admitted), launch_key (of
      a lease on several nodes: what the others admit), and the members of ``asks.Environment``
    * ``activity``: samples
    * ``admitted``: client_key; the answer to ``admit``
    * ``drained``: result, blockers, parked, reason
    * ``bye``: reason (``parent_gone``, ``ended``, ``failed``), detail, blockers, parked
    """

    type: Required[Literal["hello", "activity", "admitted", "drained", "bye"]]
    address: Annotated[str, Len(1, 255)]
    public_key: Annotated[str, Len(1, 40)]  # Z85
    protocol: Annotated[str, Len(1, 16)]
    python: Version
    executable: Path
    packages: Packages
    pid: int | None
    attempt: int | None
    keys: Annotated[dict[Z85Key, Annotated[str, MaxLen(128)]], MaxLen(KEYS_MAX)]  # to kernel ids
    launch_key: Z85Key
    samples: Annotated[list[Activity], MaxLen(600)]
    client_key: Annotated[str, Len(1, 40)]
    result: Literal["done", "blocked", "parked"]
    blockers: list[Blocker]
    parked: Count  # how many values were parked
    reason: Annotated[str, MaxLen(64)]
    detail: Annotated[str, MaxLen(2000)]


class FromWarmPod(TypedDict):
    """What a pod that stands ready says, once: it has imported all it needs."""

    type: Literal["ready"]
    protocol: Annotated[str, Len(1, 16)]


#: What messages of a type must have, where that is anything.
NEEDED: Mapping[str, frozenset[str]] = {
    "hello": frozenset({"address", "public_key", "protocol"}),
    "admitted": frozenset({"client_key"}),
    "drained": frozenset({"result"}),
}


class KernelReport(TypedDict):
    """Server to service over the events websocket (``type: kernels``): the server's kernels."""

    id: Annotated[str, MaxLen(128)]
    # When a cell ran last, ISO; the newest is the page's kernel.
    last_cell: Annotated[str, MaxLen(40)] | None
    busy: bool
    notebook: NotRequired[Annotated[str, MaxLen(1000)]]  # its path on the server, "" for none
    # Those that are for it.
    leases: NotRequired[Annotated[list[Annotated[str, MaxLen(64)]], MaxLen(100)]]


class FromServer(TypedDict, total=False):
    """A message of a notebook server on its events channel.

    * ``kernels``: kernels
    * ``language``: language; the channel tells everything anew in it, English where it has no other
    * ``supervisor``: lease_id, attempt, state, detail, pids
    """

    type: Required[Literal["kernels", "language", "supervisor"]]
    kernels: Annotated[list[KernelReport], MaxLen(500)]
    language: Annotated[str, MaxLen(LANGUAGE_MAX)]
    lease_id: Annotated[str, MaxLen(64)]
    attempt: int
    state: Literal["started", "failed", "exited"]
    detail: Annotated[str, MaxLen(2000)]
    pids: Annotated[list[int], MaxLen(1000)]
