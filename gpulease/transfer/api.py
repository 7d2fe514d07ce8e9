"""The reports of a switch, and what travels.

The classes that do the work are ``home.HomeSide`` and ``away.AwaySide``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


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


class Absent(NamedTuple):
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


class StageError(Exception):
    """A parcel cannot be loaded here; the text names the variables.

    ``roots``: of the component that it is about, where it is about one.
    """

    def __init__(self, text: str, roots: Collection[str] = ()) -> None:
        super().__init__(text)
        self.roots = frozenset(roots)
