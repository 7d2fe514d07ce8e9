"""Home kernel to lease: the control channel, and what is added to Jupyter messages.

Home kernel (DEALER) to supervisor (ROUTER): one JSON frame each way, with an ``id`` that
the answer repeats.  Calls: ``open`` (CompanionOpen -> CompanionOpened), ``interrupt``, ``abandon``
(kill this kernel's companion), ``close`` (end it in order), ``drained`` (KernelDrained),
``mirror`` (root, wire_key -> MirrorView), ``ping`` (``cell``: whether a GPU cell runs there, from
its first value sent to its last value back; forgotten when no ping comes).
Pushed without id: ``warn``, ``clear``, ``drain``, ``resume``, ``companion_died``, ``end``.
Shapes: ``{"id": n, "call": name, "args": {...}}``, answered by ``{"id": n, "ok": ...}`` or
``{"id": n, "problem": RFC 9457 object}``; pushed ``{"push": name, ...members}`` with the members
of the supervisor message of that name (``companion_died``: ``kernel_id``, ``detail``).
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.protocol.service import Blocker

#: Jupyter channels, home kernel to companion: ordinary messages.  An ``execute_request`` carries
#: home's own ``msg_id`` in its header and, under ``EXECUTE_METADATA`` in its metadata, an
#: ``ExecuteMetadata``; the companion runs the cell under that execution count.
EXECUTE_METADATA: Final = "gpulease"


class CellText(TypedDict):
    """A cell that ran at home, for tracebacks of functions that it defined."""

    name: str  # the file name that it was compiled under
    execution_count: int
    text: str


class ExecuteMetadata(TypedDict):
    """What home adds to an ``execute_request``'s metadata, under ``EXECUTE_METADATA``."""

    execution_count: int  # home's count for this cell: ``In[n]``, ``Out[n]``, ``Cell In[n]``
    cells: NotRequired[list[CellText]]  # home's cells since the last request


class ReplyMetadata(TypedDict, total=False):
    """What a companion adds to an ``execute_reply``'s metadata, under ``EXECUTE_METADATA``."""

    magics: list[tuple[str, str, str]]  # made by the cell: line or cell, its name, its variable's


class CompanionOpen(TypedDict):
    """Ask for this home kernel's companion; starts it when it does not run."""

    kernel_id: str
    protocol: str
    version: str  # gpulease's; another minor version is refused
    python: str  # "3.11.7"; another minor version is refused
    packages: dict[str, str]  # versions of packages whose objects travel
    cwd: str
    path: list[str]  # sys.path
    environ: dict[str, str]  # allow-listed by home, never tokens or device variables
    hash_seed: str  # PYTHONHASHSEED of home, "" when unset
    wire_key: str  # home's public key for the Jupyter channels and the transfer wire (Z85)
    executable: NotRequired[str]  # sys.executable of home, used where it exists in the lease too


class CompanionOpened(TypedDict):
    """The companion runs: where its Jupyter channels and its transfer wire are."""

    connection: dict[str, Any]  # jupyter_client's, without the kernel's secret key
    wire_address: str
    wire_key: str  # Z85, the companion's server key
    pid: int
    fresh: bool  # False when the companion lived already
    warnings: list[str]  # sentences about differing package versions
    parked: str  # path of this kernel's parked values, "" for none
    mirror: NotRequired[str]  # home's files are mirrored below this directory; "" they are mounted


class MirrorView(TypedDict):
    """Answer to ``mirror`` (kernel_id, root, wire_key): where a directory is mirrored.

    It takes the place of the kernel's mirror before; only ``wire_key`` is let in.
    """

    address: str
    key: str  # Z85
    limit: int  # bytes that it may hold


class KernelDrained(TypedDict):
    """Home kernel to supervisor: what the drain brought home."""

    kernel_id: str
    result: Literal["done", "blocked"]
    blockers: list[Blocker]
