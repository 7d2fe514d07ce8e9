"""What a directory holds at one moment, as both sides write it down.

A manifest lists entries, and what was left out.  A path is relative, with ``/`` between its parts;
bytes that are not UTF-8 are kept as surrogates, as Python does in file names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What stands at a path."""

    FILE = "file"
    DIRECTORY = "dir"
    LINK = "link"
    LEFT_OUT = "left"  # something that does not travel; whatever it is, it is never overwritten


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of what stands at a path.

    Attributes:
        kind: what it is.
        mark: tells versions apart: a file's content hash, a link's target, why it is left out.
        size: bytes of a file.
        executable: a file that its owner may execute.
        mtime_ns: when it was written; carried along, and no part of the version.
    """

    kind: Kind
    mark: str = ""
    size: int = 0
    executable: bool = False
    mtime_ns: int = 0

    def same(self, other: Entry | None) -> bool:
        """Tell whether this is the same version; what is left out is never known to be."""
        return (
            other is not None
            and self.kind is other.kind
            and self.kind is not Kind.LEFT_OUT
            and (self.mark, self.executable) == (other.mark, other.executable)
        )


DIRECTORY = Entry(Kind.DIRECTORY)

#: Why something is left out that was not looked into: what lies below it is not known.
BUSY = "busy"
UNREADABLE = "unreadable"

#: Path to what stands there; a path that is not in it does not exist.
Manifest = dict[str, Entry]


@dataclass(frozen=True)
class Left:
    """A file that does not travel, and why."""

    path: str
    why: str  # a code of ``words``
    size: int = 0
    where: str = "home"  # or "gpu": the side that has it


def same(one: Entry | None, other: Entry | None) -> bool:
    """Tell whether both sides hold the same version, or nothing."""
    return one is other if one is None or other is None else one.same(other)


def below(path: str, parent: str) -> bool:
    """Tell whether ``path`` lies below ``parent``."""
    return path.startswith(f"{parent}/")


def parents(path: str) -> Iterable[str]:
    """Yield the directories that ``path`` lies in, innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def packed(entries: Mapping[str, Entry | None]) -> bytes:
    """Return entries as bytes; None says that nothing stands there."""
    return json.dumps([[path, row(entry)] for path, entry in entries.items()]).encode()


def unpacked(data: bytes | bytearray) -> dict[str, Entry | None]:
    """Return what ``packed`` was given.

    Raises:
        ValueError: it is something else.
    """
    return {str(path): entry(found) for path, found in json.loads(bytes(data))}


def row(found: Entry | None) -> list[Any] | None:
    """Return an entry as JSON."""
    if found is None:
        return None
    return [found.kind.value, found.mark, found.size, found.executable, found.mtime_ns]


def entry(found: list[Any] | None) -> Entry | None:
    """Return the entry that ``row`` was given.

    Raises:
        ValueError: it is something else.
    """
    if found is None:
        return None
    try:
        kind, mark, size, executable, mtime_ns = found
        return Entry(Kind(kind), str(mark), int(size), bool(executable), int(mtime_ns))
    except TypeError as error:
        raise ValueError("not an entry") from error
