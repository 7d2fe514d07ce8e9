"""What one side knows of the other: versions of roots, absent names, costs.

Owns the bookkeeping and nothing else: no values of the user are kept here, except the older ones
that a person may still recover (``aside``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpulease.transfer.frameworks.sealed import Culprit
from gpulease.transfer.registry import Registry
from gpulease.transfer.values.groups import Group, name_root
from gpulease.transfer.values.walks.trace import Trace
from gpulease.transfer_next.api import TransferSettings
from gpulease.transfer_next.hashing import split

from .pickling import Packed, with_versions


@dataclass(frozen=True)
class Base:
    """The content both sides hold of some roots: this side's own digest of all of them together."""

    roots: frozenset[str]
    digest: bytes
    trace: Trace = frozenset()
    memory: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Absent:
    """A name whose newest content is on the other side.

    ``size`` in bytes (None: not measured); ``blocker`` in words where it cannot come;
    ``cell`` the execution count of the cell that changed it last, ``made`` of the one that made
    the object; ``reads`` what its functions read; ``module`` the one that it is, where that is
    only not imported here.
    """

    type_name: str
    size: int | None = None
    blocker: str = ""
    cell: int | None = None
    reads: tuple[str, ...] = ()
    sure: bool = True
    made: int | None = None
    shared_with: str = ""
    module: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the wire form."""
        return {
            "type": self.type_name, "size": self.size, "blocker": self.blocker,
            "cell": self.cell, "reads": list(self.reads), "made": self.made,
            "shared_with": self.shared_with,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Absent:
        """Rebuild from the wire form."""
        return cls(
            data["type"], data["size"], data["blocker"], data["cell"], tuple(data["reads"]),
            made=data["made"], shared_with=data["shared_with"],
        )  # fmt: skip


@dataclass(frozen=True)
class Bulk:
    """What a walk found of a name that takes long to walk, for switches that can do without.

    ``number`` is the ``id`` of its value, ``mates`` the names of its group, ``needs`` its units.
    """

    number: int
    mates: frozenset[str]
    needs: frozenset[str]
    absent: Absent


@dataclass
class Ledger:
    """Two ledgers of one side: roots both hold, units the other knows, names absent here."""

    base: dict[str, Base] = field(default_factory=dict)
    peer_units: set[str] = field(default_factory=set)
    remote: dict[str, Absent] = field(default_factory=dict)
    superseded: set[str] = field(default_factory=set)
    #: Names that the other side has, or may have, though no content of them is agreed on.
    unagreed: set[str] = field(default_factory=set)
    blocked: dict[str, str] = field(default_factory=dict)
    #: Root to the bytes of its group on the wire, as it was packed last.
    sizes: dict[str, int] = field(default_factory=dict)
    #: Object id to the digest of the memory that both sides hold of it.
    memory: dict[str, bytes] = field(default_factory=dict)
    #: Object id to its count of writes here, when both sides were last the same.
    versions: dict[str, int] = field(default_factory=dict)
    #: What home cannot load, as the companion was told: it sends objects of it sealed.
    culprits: set[Culprit] = field(default_factory=set)
    #: Names that the other side holds as agreed, but put away: nobody here has looked since.
    withheld: set[str] = field(default_factory=set)
    #: Whether code of the user's ran on the other side beside its cells, when it was last heard.
    peer_runs_on: bool = False
    #: What is gone here, and nobody has told the other side.
    untold: set[str] = field(default_factory=set)
    bulk: dict[str, Bulk] = field(default_factory=dict)
    #: Root to the digests of chunks that the other side had of it last, whatever it is here now.
    chunks: dict[str, bytes] = field(default_factory=dict)

    def forget_peer(self) -> None:
        """The other side is gone or new: it holds nothing."""
        self.base.clear()
        self.peer_units.clear()
        self.superseded.clear()
        self.unagreed.clear()
        self.memory.clear()
        self.culprits.clear()
        self.withheld.clear()
        self.untold.clear()
        self.chunks.clear()
        self.peer_runs_on = False

    def agree_alike(
        self,
        roots: Iterable[str],
        content: bytes,
        versions: Mapping[str, int],
        size: int,
        chunks: bytes,
    ) -> None:
        """Both sides hold these roots now, and this one would pack them as the other one did."""
        base = Base(frozenset(roots), with_versions(content, versions))
        self.versions.update(versions)
        self._agree_on_chunks(base.roots, chunks)
        for root in base.roots:
            self.base[root] = base
            self.sizes[root] = size

    def agree(self, packed: Packed) -> None:
        """Both sides hold these roots now, as this side packed them."""
        key = frozenset(packed.roots)
        memory = dict(packed.memory.values())
        base = Base(key, packed.digest, packed.trace, frozenset(memory))
        self.memory.update(memory)
        self.versions.update(packed.versions)
        self._agree_on_chunks(key, b"".join(packed.chunks))
        for root in key:
            self.base[root] = base

    def _agree_on_chunks(self, roots: Iterable[str], chunks: bytes) -> None:
        for root in roots:
            if chunks:
                self.chunks[root] = chunks
            else:
                self.chunks.pop(root, None)

    def known_chunks(self, roots: Iterable[str]) -> frozenset[bytes]:
        """Return the digests of what the other side may still have of these roots' memory."""
        found = {chunks for root in roots if (chunks := self.chunks.get(root))}
        return frozenset(digest for chunks in found for digest in split(chunks))

    def forget_chunks(self, roots: Iterable[str]) -> None:
        """The other side has nothing older of these roots."""
        for root in roots:
            self.chunks.pop(root, None)

    def differ(self, roots: Iterable[str]) -> None:
        """The other side no longer holds these roots as this one does."""
        for root in roots:
            base = self.base.pop(root, None)
            for oid in base.memory if base is not None else ():
                self.memory.pop(oid, None)

    def held(self, packed: Packed) -> frozenset[int]:
        """Return indices of buffers that the other side holds as they are."""
        return frozenset(
            index
            for index, (oid, digest) in packed.memory.items()
            if self.memory.get(oid) == digest
        )

    def risen(self, packed: Packed) -> tuple[str, ...]:
        """Return ids of objects that were written to since both sides were last the same."""
        known = self.versions
        return tuple(oid for oid, v in packed.versions.items() if known.get(oid, v) != v)

    def gone(self, registry: Registry) -> tuple[str, ...]:
        """Return the ids of objects that are gone, again until the other side has heard."""
        self.untold.update(registry.prune())
        return tuple(sorted(oid for oid in self.untold if registry.get(oid) is None))

    def forget(self, oids: Iterable[str]) -> None:
        """The other side has no objects of these ids."""
        for oid in oids:
            self.peer_units.discard(oid)
            self.memory.pop(oid, None)
            self.versions.pop(oid, None)

    def differ_with_units(self, names: Iterable[str]) -> None:
        """The other side has newer content of these names' groups: units in them are old here."""
        for name in names:
            base = self.base.get(name_root(name))
            self.differ([name_root(name)])
            if base is not None:
                self.differ(root for root in base.roots if root.startswith("u:"))

    def partners(self, names: Iterable[str]) -> set[str]:
        """Return names that shared a group with one of ``names`` at the last agreement."""
        out = set(names)
        for name in tuple(out):
            base = self.base.get(name_root(name))
            if base is not None:
                out.update(root[2:] for root in base.roots if root.startswith("n:"))
        return out

    def common(self, group: Group) -> Base | None:
        """Return the one agreement that covers all of the group's roots, if there is one."""
        found = {id(self.base.get(root)): self.base.get(root) for root in group.roots}
        if len(found) != 1:
            return None
        return next(iter(found.values()))

    def packed_bytes(self, group: Group) -> int | None:
        """Return the bytes of the group as it was packed last, if every root was."""
        known = [self.sizes.get(root) for root in group.roots]
        if not known or any(size is None for size in known):
            return None
        return max(size for size in known if size is not None)

    def is_small(self, group: Group, settings: TransferSettings) -> bool:
        """Say whether the group travels without being needed: by counts alone, never by a clock."""
        if group.objects > settings.small_objects or group.nbytes >= settings.small_bytes:
            return False  # packed it is larger still, by what frames its buffers
        return (self.packed_bytes(group) or 0) <= settings.small_bytes
