"""What other packages may rely on: the reports of a switch, and the two halves' contract.

The classes that do the work are ``home.HomeSide`` and ``away.AwaySide``; these protocols say who
calls what when (DESIGN, "How data flows", 5 to 7).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gpulease.channel.keys import Endpoint, KeyPair


class Place(StrEnum):
    """Where the newest content of a variable is."""

    HOME = "home"
    BOTH = "both"
    GPU = "gpu"
    LOST = "lost"
    CONFLICTED = "conflicted"
    PARKED = "parked"


@dataclass(frozen=True)
class VariableStatus:
    """One row of ``%gpu``: ``size`` in bytes (None: never measured), ``blocker`` a sentence.

    ``shared_with``: the name whose ``size`` counts this one's value too, as they share objects.
    ``older``: the GPU cell after which home had the whole value last, where the newest is away.
    """

    name: str
    type_name: str
    place: Place
    size: int | None
    verified: bool
    blocker: str = ""
    shared_with: str = ""
    older: int | None = None


@dataclass(frozen=True)
class Note:
    """Something the person should read under a cell; ``names`` are the variables concerned."""

    reason: str
    sentence: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SwitchReport:
    """What one switch moved: bytes on the wire, seconds, names each way, and what to say."""

    moved: tuple[str, ...] = ()
    bytes: int = 0
    seconds: float = 0.0
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class DrainReport:
    """Result of a drain: ``done`` when nothing that is newer away is left there."""

    done: bool
    blockers: tuple[VariableStatus, ...] = ()
    notes: tuple[Note, ...] = ()
    parked: int = 0  # how many names were written to the parked file


@dataclass(frozen=True)
class TransferSettings:
    """Bounds of the simple model (contract, "Small is eager")."""

    small_bytes: int = 16 * 2**20
    memory_margin: int = 256 * 2**20
    #: Results of GPU cells that are kept for home, as many as IPython's ``Out`` keeps.
    results: int = 1000
    #: Bytes that may be parked (the companion's to say; 0: nothing).
    park_limit: int = 0


#: In place of a cell's number (``Home.result``): what IPython remembers as the last error there.
LAST_ERROR = 0
Progress = Callable[[str, int, int], None]  # (name, bytes done, bytes in all)


class Home(Protocol):
    """The home kernel's half.

    The kernel's gate and route call it on the main thread unless a method says otherwise; every
    wait there ends on ``KeyboardInterrupt``, leaving both sides as before the call.
    Refusals are ``GPULeaseError`` with the variable's name, reason and way out.
    """

    owner: Place  #: HOME or GPU: where the newest values are

    def connect(self, endpoint: Endpoint, keys: KeyPair, *, parked: str = "") -> Sequence[Note]:
        """Called after ``open``: a companion is there (new, or the same again)."""

    def disconnect(
        self, *, died: bool, cell: str = "", lost: Collection[str] = ()
    ) -> Sequence[Note]:
        """Called when the companion is gone.

        ``died``: what was not home becomes *lost*; else it was parked, except the names ``lost``.
        """

    def before_gpu_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Called before a cell goes away: makes the companion the owner, sends what it needs."""

    def after_gpu_cell(self, execution_count: int) -> SwitchReport:
        """Called before the GPU cell's reply: small groups home, changed names removed."""

    def before_home_cell(self, source: str, *, progress: Progress | None = None) -> SwitchReport:
        """Called by the gate before each home cell: brings home what it may read, or raises."""

    def after_home_cell(self, execution_count: int = 0) -> None:
        """Called when a home cell ended: its groups are unverified from now on."""

    def ran_beside(self) -> None:
        """Called on any thread when home code ran that no cell began, a callback of the page."""

    def ran_there(self) -> None:
        """Called on any thread when a callback of the page is sent to the companion."""

    def commit_pending(self) -> bool:
        """Called between cells (also by the idle loop): commit what is staged; True if any."""

    def drain(self, seconds: float) -> DrainReport:
        """Called on any thread when the lease leaves; values are committed between cells."""

    def fetch(self, names: Sequence[str]) -> SwitchReport:
        """``%gpu fetch NAME...``: bring these home now."""

    def resolve(self, name: str, keep: str) -> None:
        """``%gpu resolve NAME home|gpu``: end a conflict."""

    def recover(self, names: Sequence[str] = ()) -> tuple[Sequence[str], Sequence[Note]]:
        """``%gpu recover [NAME...]``: accept older values of lost names, of all by default.

        Returns those that there were, and why there is none of the others.
        """

    def status(self) -> Sequence[VariableStatus]:
        """``%gpu``: every user variable and where it lives; never moves anything."""

    def slow_because(self) -> str:
        """``%gpu``: why large values travel more slowly than they could; empty if they do not."""

    def explain(self, name: str) -> Note | None:
        """Called on a NameError: why ``name`` is absent, or None when it is simply not defined."""

    def explain_stayed(self, name: str) -> Note | None:
        """Called on a GPU cell's NameError: why ``name`` stayed at home, None where it did not."""

    def explain_error(self, error: str) -> str:
        """Called with the text of a GPU cell's error: what of the values explains it, or ""."""

    def share_variables(self, names: Collection[str]) -> None:
        """Called with the environment variables that travel although they hold secrets."""

    def away_modules(self) -> Mapping[str, str]:
        """Return the names of modules that only GPU cells have imported, with the modules'."""

    def away_names(self) -> Sequence[str]:
        """Called by Tab and inspection: names whose value is only away."""

    def result(self, execution_count: int) -> Any:
        """Called lazily by ``Out[n]`` and ``_``: the value of a GPU cell's result, fetched.

        With ``LAST_ERROR``: the companion's last error and its frames.
        """


class Away(Protocol):
    """The companion's half; it runs its own thread and never blocks the companion's main thread."""

    def start(
        self, client_key: str, *, host: str, port: int, bulk_port: int | None = None
    ) -> Endpoint:
        """Called once, before the companion's kernel says it is ready; port 0: any.

        ``bulk_port``: for large values between two machines; None: there is none for them.
        """

    def cell_started(self, source: str) -> None:
        """Called on the main thread before each user cell or callback: background passes abort."""

    def cell_ended(self, execution_count: int | None, result: Any) -> None:
        """Called on the main thread after each of them: what this side has may have changed."""

    def thread_ids(self) -> frozenset[int]:
        """Called by the activity watch: native ids of transfer's own threads, never user work."""

    def park(self, path: str, limit: int | None = None) -> DrainReport:
        """Called at the hard end: write what is not home to ``path`` (mode 0600).

        ``limit``: bytes that may be written; what does not fit is named as a blocker.
        """

    def close(self) -> None:
        """Called when the companion ends."""


@dataclass(frozen=True)
class Absent:
    """Why a name is not bound on this side."""

    reason: str
    #: Whether it can come when a cell needs it; else it stays where it is.
    can_come: bool
    type_name: str = ""
    #: Bytes of its component, None where it cannot be packed.
    size: int | None = None
    #: Whether its bytes are kept here, for a side that can open them.
    is_sealed: bool = False


@dataclass
class PackedComponent:
    """One component on its way: a pickle, and the memory beside it."""

    roots: tuple[str, ...]
    stream: bytes
    buffers: list[Any]
    #: For objects that something on the sender's side holds: index in the memo (or -1 less the
    #: place among the empty objects) and pin.
    held: list[tuple[int, str]] = field(default_factory=list)
    #: Pins of the receiver whose contents follow the roots in the stream, in this order.
    filled: tuple[str, ...] = ()
    #: Pins of the receiver whose objects cannot be given the content that comes.
    kept: tuple[str, ...] = ()
    #: How many empty objects the stream begins with, whose contents follow.
    deep: int = 0
    #: Whether the receiver's own pickle of it will have the same bytes.
    same_there: bool = False
    #: Its bytes, where it then rests on the receiver's side as it does here (see ``sending.rest``).
    rests: int = 0
    #: Large memory, whose pieces follow the stream's own buffers: id, size, runs of the pieces.
    memories: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = ()

    #: By place among the buffers, what memory they are to be received into (see ``pieces.form``).
    forms: dict[int, Sequence[Any]] = field(default_factory=dict)

    def own_buffers(self) -> tuple[list[Any], list[Any]]:
        """Return the buffers of the stream, and the pieces of large memory."""
        count = len(self.buffers) - sum(len(runs) for _, _, runs in self.memories)
        return self.buffers[:count], self.buffers[count:]

    @property
    def names(self) -> list[str]:
        """The variables among the roots."""
        return [root[2:] for root in self.roots if root[0] == "n"]


@dataclass
class Parcel:
    """What one side sends when the other one takes over, or asks for names."""

    components: list[PackedComponent]
    #: Empty classes for what the receiver lacks, bases first: id and pickle.
    shells: list[tuple[str, bytes]]
    #: The sender's names in their order; None where only some were asked for.
    names: list[str] | None
    away: dict[str, Absent]
    #: Names that the receiver has and the sender has not.
    yours: frozenset[str]
    #: The sender's pins: what the receiver keeps a counterpart of.
    pins: frozenset[str]
    state: dict[str, Any]
    #: The sender's own modules: digest of the file, and how often it was loaded.
    own: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: Names whose very value cannot leave the sender's side, and what it is, in words: what stands
    #: for it travels.
    stays: dict[str, str] = field(default_factory=dict)
    #: By roots: ids of the classes that components refer to.
    classes: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    #: By id, digests of the pieces of large memory that both sides have then.
    memories: dict[str, bytes] = field(default_factory=dict)
    #: Digests by roots, for the sender's own baseline once the receiver has committed.
    digests: dict[frozenset[str], bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Receiver:
    """What the other side says of itself when it asks for a parcel."""

    #: Bytes that it has room for.
    room: int
    #: Ids of large memory that it still has as it was when both sides had it.
    holds: frozenset[str] = frozenset()


class AbandonedError(Exception):
    """A pass was given up because user code began to run."""


class StageError(Exception):
    """A parcel cannot be loaded here; the text names the variables.

    ``roots``: of the component that it is about, where it is about one.
    """

    def __init__(self, text: str, roots: Collection[str] = ()) -> None:
        super().__init__(text)
        self.roots = frozenset(roots)
