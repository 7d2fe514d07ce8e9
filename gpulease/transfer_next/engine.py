"""The calls of a switch between the sides, and what an engine answers.

An engine holds one side's namespace.  A switch is ``pack`` on one side, ``stage`` and ``commit`` on
the other one, then ``acknowledge`` on the first; ``abandon`` leaves both as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Away:
    """Why a name is not bound on this side."""

    reason: str
    #: Whether it can come when a cell needs it; else it stays where it is.
    can_come: bool
    type_name: str = ""
    #: Bytes of its component, None where it cannot be packed.
    size: int | None = None


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
    #: Large memory, whose pieces follow the stream's own buffers: id, size, numbers of the pieces.
    memories: tuple[tuple[str, int, tuple[int, ...]], ...] = ()

    def own_buffers(self) -> tuple[list[Any], list[Any]]:
        """Return the buffers of the stream, and the pieces of large memory."""
        count = len(self.buffers) - sum(len(numbers) for _, _, numbers in self.memories)
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
    away: dict[str, Away]
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


@dataclass(frozen=True)
class Sealed:
    """A component that this side cannot open."""

    packed: PackedComponent
    #: Of the side that has packed it.
    digest: bytes
    #: What it refers to, kept alive, by id.
    classes: Mapping[str, type]
    reason: str


class Engine(Protocol):
    """One side's namespace."""

    def names(self) -> list[str]:
        """Return the person's names here, in their order, and those of results (``Out[3]``)."""

    def lacking(self, names: Collection[str]) -> set[str]:
        """Return which of the names that these lead to are not bound here ("*": all of them)."""

    def changed(self) -> list[frozenset[str]]:
        """Return the roots of each component that the other side lacks as it is here.

        Among them are pins of this side's, and the names of classes.
        """

    def pack(self, needed: Collection[str] | None = None, *, hand_over: bool = True,
             small: int = 0, receiver: Receiver | None = None,
             reached: Collection[str] | None = None) -> Parcel:  # fmt: skip
        """Pack what changed, or what ``needed`` leads to; nothing is different afterwards.

        ``reached`` are the names that code which ran here since the last commit on either side
        reads or writes, "*" for all of them; None where that is not known, or where a thread, a
        task or a callback may have run.

        Of what changed, components of ``small`` bytes and fewer travel without being needed.  No
        more bytes travel than the ``receiver`` has room for.
        """

    def acknowledge(self, parcel: Parcel, *, surely: bool = True) -> None:
        """The other side has committed what ``pack`` gave, or, not ``surely``, may have."""

    def stage(self, parcel: Parcel) -> Any:
        """Load a parcel beside what is here; raises ``StageError`` and leaves all as it was."""

    def commit(self, staged: Any) -> None:
        """Put what was loaded in place: all of it, or nothing where it raises."""

    def abandon(self, staged: Any) -> None:
        """Drop what was loaded; all is as it was before ``stage``."""

    def away(self) -> Mapping[str, Away]:
        """Return the names that are not bound here, and why."""

    def forget_peer(self, holds: Mapping[str, Away] | None = None) -> None:
        """The other side is new and holds nothing but these, which did not come from here."""


class AbandonedError(Exception):
    """A pass was given up because user code began to run."""


class StageError(Exception):
    """A parcel cannot be loaded here; the text names the variables.

    ``roots``: of the component that it is about, where it is about one.
    """

    def __init__(self, text: str, roots: Collection[str] = ()) -> None:
        super().__init__(text)
        self.roots = frozenset(roots)
