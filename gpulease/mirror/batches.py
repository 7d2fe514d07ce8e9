"""Contents in messages: large ones in pieces, small ones together.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: The most bytes of contents in one message; more would be asked for piece by piece again.
PIECE = 2**20
_FILES_IN_A_MESSAGE = 500


def asks(wanted: Mapping[str, tuple[str, int]]) -> Iterator[tuple[list[Any], bytes]]:
    """Yield (content hash, offset, length) of each piece of the contents that are wanted."""
    for digest, (_, size) in wanted.items():
        for offset in range(0, max(1, size), PIECE):
            yield [digest, offset, min(PIECE, size - offset)], b""


def batches(
    pieces: Iterator[tuple[list[Any], bytes]],
) -> Iterator[tuple[list[list[Any]], list[bytes]]]:
    """Put small pieces together into messages."""
    heads: list[list[Any]] = []
    blobs: list[bytes] = []
    size = 0
    for head, blob in pieces:
        length = len(blob) or int(head[2])
        if heads and (size + length > PIECE or len(heads) >= _FILES_IN_A_MESSAGE):
            yield heads, blobs
            heads, blobs, size = [], [], 0
        heads.append(head)
        blobs.append(blob)
        size += length
    if heads:
        yield heads, blobs
