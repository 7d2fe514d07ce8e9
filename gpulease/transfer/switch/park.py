"""Puts what could not go home into a file that the next companion reads.

Owns the file: mode 0600, parts one after the other, each the length of its head, a head in JSON and
blobs.  A part is written as soon as it is packed and let go of before the next one, so that parking
takes the memory of one value and not of all.  The file is written beside its place and renamed, so
that a half-written one is never read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from gpulease.errors import GPULeaseError
from gpulease.sizes import size_text
from gpulease.transfer.values.groups import names_of
from gpulease.transfer.values.packing.shipment import Incoming, Shipment
from gpulease.transfer.values.side import Side

from .planning import Wanted, plan

_LENGTH = 8


def write_parked(
    side: Side, names: Sequence[str], path: str, deadline: float, limit: int | None = None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Write ``names`` of a side, with all they need; return what is left out and why.

    The peer is taken to know nothing: the file must stand alone.
    """
    side.ledger.forget_peer()
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            parking = _Parking(side, file, deadline, limit)
            for name in names:
                parking.add(name)
            written = file.tell()
        if written:
            partial.rename(target)
        else:
            partial.unlink()
            target.unlink(missing_ok=True)  # what lies there is older than what is left out
    except BaseException:
        # A half file would keep the disk full, and an older one is not what was to be parked.
        partial.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        raise
    return parking.left, parking.blockers


class _Parking:
    """One file that is being written."""

    def __init__(self, side: Side, file: BinaryIO, deadline: float, limit: int | None) -> None:
        self._side = side
        self._file = file
        self._deadline = deadline
        self._limit = limit
        self._bytes = 0
        self._names: set[str] = set()
        self._roots: set[tuple[str, ...]] = set()
        self.left: list[str] = []
        self.blockers: list[tuple[str, str]] = []

    def add(self, name: str) -> None:
        """Write a name with all that it needs and the file has not got."""
        if name in self._names:
            return
        if time.monotonic() > self._deadline:
            self.left.append(name)
            return
        try:
            part = plan(self._side, Wanted(strict=frozenset({name})), fetch=True)
        except GPULeaseError as error:
            self.blockers.append((name, error.sentence))
            return
        items = [i.whole() for i in part.items if i.packed.roots not in self._roots]
        size = sum(item.packed.nbytes for item in items)
        if self._limit is not None and self._bytes + size > self._limit:
            self.blockers.append((name, _too_big(size, self._limit - self._bytes)))
            return
        self._write(Shipment(items))
        self._bytes += size
        self._roots.update(item.packed.roots for item in items)
        self._names.update(part.names)

    def _write(self, shipment: Shipment) -> None:
        header, blobs = shipment.encode()
        head = json.dumps({"header": header, "sizes": [len(blob) for blob in blobs]}).encode()
        self._file.write(len(head).to_bytes(_LENGTH, "little"))
        self._file.write(head)
        for blob in blobs:
            self._file.write(blob)


def _too_big(size: int, left: int) -> str:
    return f"It has {size_text(size)}; {size_text(max(0, left))} more may be parked."


def take_parked(side: Side, path: str) -> dict[str, Any]:
    """Receive what was parked; return which of its names are here, and why others are not."""
    try:
        incoming = read_parked(path)
    finally:
        # Once read it is this side's; read again later it would be an old value.
        with suppress(OSError):
            Path(path).unlink()
    outcome = side.receive(incoming)
    side.ledger.forget_peer()
    survey = side.survey()
    parked = sorted(n for g in incoming.groups for n in names_of(g.roots))
    absent = {n: side.absent(n, survey).to_json() for n in parked if n in side.ns}
    failed = outcome.refusals([group.roots for group in incoming.groups])
    return {"absent": absent, "failed": failed}


def read_parked(path: str) -> Incoming:
    """Return what was parked in ``path``; raises GPULeaseError ``parked_unreadable``."""
    try:
        with Path(path).open("rb") as file:
            return Incoming.joined(list(_parts(file)))
    except (OSError, ValueError, KeyError) as error:
        raise GPULeaseError(
            "parked_unreadable",
            f"The parked variables cannot be read ({type(error).__name__}).",
            next_step="Run the cells that made them again.",
        ) from error


def _parts(file: BinaryIO) -> Iterator[Incoming]:
    while length := file.read(_LENGTH):
        head = json.loads(file.read(int.from_bytes(length, "little")))
        blobs = [bytearray(file.read(size)) for size in head["sizes"]]
        if [len(blob) for blob in blobs] != head["sizes"]:
            raise ValueError("the file ends early")
        yield Incoming.decode(head["header"], blobs)
