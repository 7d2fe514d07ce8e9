"""Puts what could not go home into a file that the next companion reads.

Owns the file: mode 0600, a JSON line with the header, then the blobs.  It is written beside its
place and renamed, so that a half-written one is never read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gpulease.errors import GPULeaseError
from gpulease.transfer.values.shipment import Incoming, Shipment
from gpulease.transfer.values.side import Side

from .planning import Wanted, plan


def write_parked(
    side: Side, names: Sequence[str], path: str, deadline: float, limit: int | None = None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Write ``names`` of a side, with all they need; return what is left out and why.

    The peer is taken to know nothing: the file must stand alone.
    """
    side.ledger.forget_peer()
    shipment = Shipment()
    left: list[str] = []
    blockers: list[tuple[str, str]] = []
    done: set[str] = set()
    for name in names:
        if name in done:
            continue
        if time.monotonic() > deadline:
            left.append(name)
            continue
        try:
            part = plan(side, Wanted(strict=frozenset({name})), fetch=True)
        except GPULeaseError as error:
            blockers.append((name, error.sentence))
            continue
        known = {item.packed.roots for item in shipment.items}
        more = sum(i.packed.nbytes for i in part.items if i.packed.roots not in known)
        if limit is not None and shipment.nbytes + more > limit:
            blockers.append((name, _too_big(more, limit - shipment.nbytes)))
            continue
        for item in part.items:
            if item.packed.roots not in {i.packed.roots for i in shipment.items}:
                shipment.items.append(item)
        done |= set(part.names)
    _write(shipment, Path(path))
    return left, blockers


def _write(shipment: Shipment, target: Path) -> None:
    if not shipment.items:
        target.unlink(missing_ok=True)  # what lies there is older than what is left out
        return
    header, blobs = shipment.encode()
    for group in header["groups"]:
        group["required"] = False
    head = json.dumps({"header": header, "sizes": [len(blob) for blob in blobs]}).encode()
    partial = target.with_name(target.name + ".part")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(len(head).to_bytes(8, "little"))
            file.write(head)
            for blob in blobs:
                file.write(blob)
        partial.rename(target)
    except OSError:
        # A half file would keep the disk full, and an older one is not what was to be parked.
        partial.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        raise


def _too_big(size: int, left: int) -> str:
    return f"It has {size:,} bytes; {max(0, left):,} more may be parked."


def read_parked(path: str) -> Incoming:
    """Return what was parked in ``path``; raises GPULeaseError ``parked_unreadable``."""
    try:
        with Path(path).open("rb") as file:
            head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            blobs = [bytearray(file.read(size)) for size in head["sizes"]]
        return Incoming.decode(head["header"], blobs)
    except (OSError, ValueError, KeyError) as error:
        raise GPULeaseError(
            "parked_unreadable",
            f"The parked variables cannot be read ({type(error).__name__}).",
            next_step="Run the cells that made them again.",
        ) from error
