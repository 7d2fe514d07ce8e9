"""What travels in one switch, and its form on the wire.

Owns the header (JSON) and the blobs of a shipment: blob 0 holds every group's pickle and
skeletons one after the other, the others are raw buffers.  It knows no sockets and no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from gpulease.transfer.frameworks.sealed import Culprit
from gpulease.transfer.values.groups import names_of
from gpulease.transfer.values.landing.staging import Arrived
from gpulease.transfer_next.hashing import CHUNK, DIGEST, split

from .chunks import Partial, Run, sent_bytes
from .ledger import Absent
from .pickling import Packed


@dataclass(frozen=True)
class Item:
    """One packed group; ``required``: without it the switch fails; ``module``: may be deferred.

    ``held`` are indices of buffers that the receiver has, ``sent`` says of which others only some
    chunks travel; ``risen`` are ids of objects written to; ``wave`` and ``hidden``: see
    ``values.waves``; ``kinds`` are the types of names, for where their values do not load;
    ``read`` are names that code of the values read while they were packed.
    """

    packed: Packed
    required: bool = False
    module: str = ""
    held: frozenset[int] = frozenset()
    risen: tuple[str, ...] = ()
    sent: Mapping[int, tuple[Run, ...]] = field(default_factory=dict)
    wave: int = 0
    hidden: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    read: tuple[str, ...] = ()

    def whole(self, *, required: bool = False) -> Item:
        """Return it as for a receiver that has no part of it."""
        return replace(self, required=required, module="", held=frozenset(), risen=(), sent={})

    @property
    def nbytes(self) -> int:
        """Bytes on the wire: without what the receiver holds."""
        held = sum(self.packed.buffers[index].nbytes for index in self.held)
        return self.packed.nbytes - held - self.found_there

    @property
    def found_there(self) -> int:
        """Bytes that the receiver takes from its older value."""
        sizes = {index: self.packed.buffers[index].nbytes for index in self.sent}
        return sum(size - sent_bytes(self.sent[index], size) for index, size in sizes.items())

    def blobs(self) -> Iterator[memoryview]:
        """Yield what travels of the buffers."""
        for index, buffer in enumerate(self.packed.buffers):
            if index in self.sent:
                yield from (buffer[a * CHUNK : z * CHUNK] for a, z in self.sent[index])
            elif index not in self.held:
                yield buffer


@dataclass
class Shipment:
    """Groups, and what is said about the names that do not travel.

    ``complete``: ``absent`` lists every name that the receiver does not get.  ``withheld`` are
    names that it holds as they were: nobody looked since, so it puts them away until they are
    *same*.  ``superseded`` names were bound anew or deleted where their last value never was.
    """

    items: list[Item] = field(default_factory=list)
    absent: dict[str, Absent] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    complete: bool = False
    state: bytes = b""
    gone: tuple[str, ...] = ()
    withheld: dict[str, Absent] = field(default_factory=dict)
    superseded: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all groups."""
        return sum(item.nbytes for item in self.items)

    @property
    def found_there(self) -> int:
        """Bytes that the receiver needs room for beside what travels."""
        return sum(item.found_there for item in self.items)

    @property
    def names(self) -> tuple[str, ...]:
        """User names that travel."""
        return tuple(
            root[2:] for item in self.items for root in item.packed.roots if root.startswith("n:")
        )

    def emptied(self) -> Shipment:
        """Return what an acknowledgement needs of it: nothing that keeps values alive."""
        items = [
            replace(
                item, packed=replace(item.packed, inband=b"", buffers=[]), held=frozenset(), sent={}
            )
            for item in self.items
        ]
        return replace(self, items=items)

    def encode(self) -> tuple[dict[str, Any], list[Any]]:
        """Return header and blobs."""
        groups = []
        small = bytearray(self.state)
        buffers: list[Any] = []
        for item in self.items:
            packed = item.packed
            small += packed.inband
            for data in packed.skeletons.values():
                small += data
            chunks = packed.chunks if packed.alike or item.sent else ()
            small += b"".join(chunks)
            groups.append({
                "roots": list(packed.roots),
                "inband": len(packed.inband),
                "skeletons": {oid: len(data) for oid, data in packed.skeletons.items()},
                "buffers": len(packed.buffers),
                "held": sorted(item.held),
                "chunks": [len(each) for each in chunks],
                "sent": {i: [packed.buffers[i].nbytes, runs] for i, runs in item.sent.items()},
                "risen": item.risen,
                "lasting": dict(packed.lasting),
                "required": item.required,
                "wave": item.wave,
                "hidden": item.hidden,
                "kinds": dict(item.kinds),
                "read": item.read,
                "module": item.module,
                "digest": packed.content.hex() if packed.alike else "",
                "alike": int(packed.alike),
            })  # fmt: skip
            buffers += item.blobs()
        header = {
            "groups": groups,
            "absent": {name: absent.to_json() for name, absent in self.absent.items()},
            "deleted": list(self.deleted),
            "same": list(self.same),
            "complete": self.complete,
            "state": len(self.state),
            "gone": list(self.gone),
            "withheld": {name: absent.to_json() for name, absent in self.withheld.items()},
            "superseded": list(self.superseded),
        }
        return header, [bytes(small), *buffers]


@dataclass
class Incoming:
    """A shipment as it arrived."""

    groups: list[Arrived]
    required: list[bool]
    modules: list[str]
    absent: dict[str, Absent]
    deleted: tuple[str, ...]
    same: tuple[str, ...]
    complete: bool
    state: bytes
    gone: tuple[str, ...]
    nbytes: int
    withheld: dict[str, Absent] = field(default_factory=dict)
    waves: list[int] = field(default_factory=list)
    superseded: tuple[str, ...] = ()

    @classmethod
    def decode(cls, header: dict[str, Any], blobs: Sequence[Any]) -> Incoming:
        """Rebuild from header and blobs (bytearrays, which the values may keep)."""
        small = memoryview(blobs[0]) if blobs else memoryview(b"")
        position = int(header["state"])
        state = bytes(small[:position])
        at = 1
        groups = []
        for group in header["groups"]:
            inband = bytes(small[position : position + group["inband"]])
            position += group["inband"]
            skeletons = {}
            for oid, size in group["skeletons"].items():
                skeletons[oid] = bytes(small[position : position + size])
                position += size
            chunks = bytes(small[position : position + sum(group["chunks"])])
            position += len(chunks)
            buffers, at = _buffers(group, chunks, blobs, at)
            risen = tuple(group["risen"])
            groups.append(
                Arrived(
                    tuple(group["roots"]), inband, skeletons, buffers,
                    bytes.fromhex(group["digest"]), risen,
                    group["lasting"], group["alike"], chunks, tuple(group["hidden"]),
                    group.get("kinds", {}),  # a parked file may be older
                    tuple(group.get("read", ())),
                )
            )  # fmt: skip
        return cls(
            groups,
            [bool(group["required"]) for group in header["groups"]],
            [str(group["module"]) for group in header["groups"]],
            {name: Absent.from_json(data) for name, data in header["absent"].items()},
            tuple(header["deleted"]),
            tuple(header["same"]),
            bool(header["complete"]),
            state,
            tuple(header["gone"]),
            sum(len(blob) for blob in blobs),
            {name: Absent.from_json(data) for name, data in header["withheld"].items()},
            [int(group["wave"]) for group in header["groups"]],
            tuple(header["superseded"]),
        )

    def in_waves(self, kept: Iterable[int]) -> list[tuple[Incoming, list[int]]]:
        """Return for each wave what is said with it, and which of these groups are of it.

        What is absent or deleted is so from the first; the last says the rest.
        """
        of_waves: dict[int, list[int]] = {}
        for index in kept:
            of_waves.setdefault(self.waves[index], []).append(index)
        *early, last = [of_waves[wave] for wave in sorted(of_waves)] or [[]]
        part = replace(self, same=(), complete=False, state=b"", gone=(), withheld={})
        return [*((part, indices) for indices in early), (self, last)]

    @classmethod
    def joined(cls, parts: Sequence[Incoming]) -> Incoming:
        """Return one with the groups of all, which say nothing else."""
        groups = [group for part in parts for group in part.groups]
        modules = [module for part in parts for module in part.modules]
        required = [each for part in parts for each in part.required]
        size = sum(part.nbytes for part in parts)
        waves = [wave for part in parts for wave in part.waves]
        return cls(groups, required, modules, {}, (), (), False, b"", (), size, waves=waves)


def _buffers(
    group: dict[str, Any], chunks: bytes, blobs: Sequence[Any], at: int
) -> tuple[list[Any], int]:
    """Return a group's buffers, None for one that is here, and which blob comes next."""
    digests = iter(split(chunks))
    of_each = [list(islice(digests, size // DIGEST)) for size in group["chunks"]]
    held = set(group["held"])
    buffers: list[Any] = []
    for index in range(group["buffers"]):
        if index in held:
            buffers.append(None)
            continue
        size, runs = group["sent"].get(str(index), (0, None))
        if runs is None:
            buffers.append(blobs[at])
            at += 1
            continue
        came = list(blobs[at : at + len(runs)])
        at += len(came)
        buffers.append(Partial(size, of_each[index], [(a, z) for a, z in runs], came))
    return buffers, at


@dataclass
class Outcome:
    """What the receiver made of a shipment; ``failed``: group index to reason."""

    ok: bool
    failed: dict[int, str] = field(default_factory=dict)
    deferred: tuple[int, ...] = ()
    lacks: tuple[str, ...] = ()
    skipped: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()
    #: What did not load: objects of it are to come sealed.
    culprits: tuple[Culprit, ...] = ()
    #: Names the receiver had that need what it could not put in place: they are absent there.
    dropped: tuple[str, ...] = ()
    #: Roots of which it has not got the chunks that were not sent.
    missed: tuple[str, ...] = ()

    def then(self, later: Outcome) -> Outcome:
        """Return what was made of both, parts of one shipment."""
        return Outcome(
            later.ok,
            self.failed | later.failed,
            self.deferred + later.deferred,
            self.lacks + later.lacks,
            self.skipped + later.skipped,
            self.gone + later.gone,
            self.culprits + later.culprits,
            self.dropped + later.dropped,
            self.missed + later.missed,
        )

    def refusals(self, roots: Sequence[Iterable[str]]) -> dict[str, str]:
        """Return by name why it failed; ``roots`` are those of each group of the shipment."""
        return {n: why for index, why in self.failed.items() for n in names_of(roots[index])}

    def to_json(self) -> dict[str, Any]:
        """Return the wire form."""
        return {
            "ok": self.ok,
            "failed": {str(index): reason for index, reason in self.failed.items()},
            "deferred": list(self.deferred),
            "lacks": list(self.lacks),
            "skipped": list(self.skipped),
            "gone": list(self.gone),
            "culprits": [list(culprit) for culprit in self.culprits],
            "dropped": list(self.dropped),
            "missed": list(self.missed),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """Rebuild from the wire form."""
        return cls(
            bool(data["ok"]),
            {int(index): reason for index, reason in data["failed"].items()},
            tuple(data["deferred"]),
            tuple(data["lacks"]),
            tuple(data["skipped"]),
            tuple(data["gone"]),
            tuple((module, name) for module, name in data["culprits"]),
            tuple(data["dropped"]),
            tuple(data["missed"]),
        )
