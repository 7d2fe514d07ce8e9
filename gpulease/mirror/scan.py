"""Looks at a directory: which entries it has, by content, quickly when nothing changed.

What was hashed before is remembered.  A file is hashed again when its size, times or inode changed,
or when it was written so shortly before it was hashed that a later write could have left the same
times.  Links are never followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import xxhash

from gpulease.mirror.entries import BUSY, DIRECTORY, UNREADABLE, Entry, Kind, Left, Manifest
from gpulease.mirror.rules import Rules

_CHUNK = 2**20
#: A file that was written so shortly before it was hashed is hashed again (ns): clocks tick.
_TICK = 20_000_000
_COARSE_TICK = 2_000_000_000


class TooManyError(Exception):
    """The directory holds more than its bound."""


class Signature(NamedTuple):
    """What changes when a file is written, as far as its inode tells."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


class _Known(NamedTuple):
    signature: Signature
    entry: Entry
    sure: bool  # nothing can have been written since without changing the signature


@dataclass(frozen=True)
class Seen:
    """What one walk saw.

    Attributes:
        manifest: all of it.
        changed: what differs from the walk before; None: it is gone.
        left: what does not travel.
        hashed: bytes that were read.
    """

    manifest: Manifest
    changed: dict[str, Entry | None]
    left: list[Left] = field(default_factory=list)
    hashed: int = 0


class Scanner:
    """Looks at one directory again and again; one walk at a time.

    Args:
        root: the directory.
        where: ``home`` or ``gpu``, for naming what is left out.
    """

    def __init__(self, root: Path, where: str = "home") -> None:
        self.root = root
        self._where = where
        self._known: dict[str, _Known] = {}
        self._manifest: Manifest = {}
        self._hashed = 0

    def scan(self, rules: Rules, progress: Callable[[int], None] = lambda _: None) -> Seen:
        """Walk the directory.

        Args:
            rules: what is passed over.
            progress: called now and then with how many paths were seen.

        Raises:
            TooManyError: there is more than the rules' bounds allow.
            OSError: the directory itself cannot be read.
        """
        self._hashed = 0
        manifest: Manifest = {}
        known: dict[str, _Known] = {}
        left: list[Left] = []
        sizes: list[tuple[int, str]] = []
        pending = [""]
        while pending:
            directory = pending.pop()
            listed = self._entries(directory)
            if isinstance(listed, Entry):
                manifest[directory] = listed
                left.append(Left(directory, listed.mark, 0, self._where))
                continue
            for item in listed:
                path = f"{directory}/{item.name}" if directory else item.name
                if rules.skips(path, item.name):
                    continue
                found = manifest[path] = self._look(path, item, rules, known)
                if found.kind is Kind.FILE:
                    sizes.append((found.size, path))
                elif found.kind is Kind.DIRECTORY:
                    pending.append(path)
                elif found.kind is Kind.LEFT_OUT:
                    left.append(Left(path, found.mark, found.size, self._where))
                if len(manifest) > rules.bounds.paths:
                    raise TooManyError
                if len(manifest) % 1000 == 0:
                    progress(len(manifest))
        self._bound(sizes, rules, manifest, left)
        changed = self._difference(manifest)
        self._manifest, self._known = manifest, known
        return Seen(manifest, changed, left, self._hashed)

    def signature(self, path: str) -> Signature | None:
        """Return the signature that ``path`` had when it was last seen or written."""
        found = self._known.get(path)
        return found.signature if found else None

    def wrote(self, path: str, entry: Entry | None, found: os.stat_result | None) -> None:
        """Note what the mirror itself has put at ``path``, or that it removed it."""
        if entry is None:
            self._manifest.pop(path, None)
            self._known.pop(path, None)
            return
        self._manifest[path] = entry
        if found is not None and entry.kind is Kind.FILE:
            # Written by us with an older time of its own: a later write shows by that time alone.
            self._known[path] = _Known(
                signature_of(found), entry, _is_past(found.st_mtime_ns, found)
            )

    def _entries(self, directory: str) -> list[os.DirEntry[str]] | Entry:
        try:
            with os.scandir(self.root / directory if directory else self.root) as found:
                return list(found)
        except OSError as error:
            if not directory:
                raise
            return _unseen(error)

    def _look(
        self, path: str, item: os.DirEntry[str], rules: Rules, known: dict[str, _Known]
    ) -> Entry:
        try:
            found = item.stat(follow_symlinks=False)
        except OSError as error:
            return _unseen(error)
        mode = found.st_mode
        if stat.S_ISREG(mode):
            if found.st_size > rules.bounds.file:
                return Entry(Kind.LEFT_OUT, "too_large", found.st_size)
            return self._file(path, found, known)
        if stat.S_ISDIR(mode):
            return DIRECTORY
        if stat.S_ISLNK(mode):
            return self._link(path)
        return Entry(Kind.LEFT_OUT, "special")

    def _file(self, path: str, found: os.stat_result, known: dict[str, _Known]) -> Entry:
        before = self._known.get(path)
        signature = signature_of(found)
        if before is not None and before.sure and before.signature == signature:
            known[path] = before
            return before.entry
        try:
            digest, after = _hash(self.root / path)
        except OSError as error:
            return _unseen(error, found.st_size)
        self._hashed += after.st_size
        if signature_of(after) != signature:
            # It is being written: what was known of it before stands until it rests.
            return before.entry if before else Entry(Kind.LEFT_OUT, BUSY, after.st_size)
        executable = bool(found.st_mode & stat.S_IXUSR)
        entry = Entry(Kind.FILE, digest, found.st_size, executable, found.st_mtime_ns)
        if before is not None and before.entry.same(entry):
            entry = before.entry
        known[path] = _Known(signature, entry, sure=_is_sure(found))
        return entry

    def _link(self, path: str) -> Entry:
        try:
            target = os.readlink(self.root / path)  # noqa: PTH115 - a path would lose its form
        except OSError as error:
            return _unseen(error)
        if not leads_inside(self.root, path, target):
            return Entry(Kind.LEFT_OUT, "outside")
        return Entry(Kind.LINK, target)

    def _bound(
        self, sizes: list[tuple[int, str]], rules: Rules, manifest: Manifest, left: list[Left]
    ) -> None:
        """Leave the largest files out when all of them together are too much."""
        total = sum(size for size, _ in sizes)
        for size, path in sorted(sizes, reverse=True):
            if total <= rules.bounds.total:
                return
            total -= size
            manifest[path] = Entry(Kind.LEFT_OUT, "no_room", size)
            left.append(Left(path, "no_room", size, self._where))

    def _difference(self, manifest: Manifest) -> dict[str, Entry | None]:
        before = self._manifest
        # Most entries are the very objects of the last walk.
        changed: dict[str, Entry | None] = {
            path: entry
            for path, entry in manifest.items()
            if (old := before.get(path)) is not entry and old != entry
        }
        changed.update(dict.fromkeys(before.keys() - manifest.keys()))
        return changed


def _unseen(error: OSError, size: int = 0) -> Entry:
    """Return what stands for something that was listed and could not be looked at.

    What is being moved just now is not deleted: the next walk sees where it went.
    """
    gone = isinstance(error, FileNotFoundError | NotADirectoryError)
    return Entry(Kind.LEFT_OUT, BUSY if gone else UNREADABLE, size)


def signature_of(found: os.stat_result) -> Signature:
    """Return what tells that a file was written."""
    return Signature(
        found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode
    )


def leads_inside(root: Path, path: str, target: str) -> bool:
    """Tell whether a link at ``path`` leads to a place in ``root``, by its text alone."""
    if os.path.isabs(target):  # noqa: PTH117
        inside = os.path.relpath(target, root)
    else:
        inside = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    return inside != ".." and not inside.startswith("../")


def _hash(path: Path) -> tuple[str, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        digest = xxhash.xxh3_128()
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
        return digest.hexdigest(), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _is_sure(found: os.stat_result) -> bool:
    return _is_past(max(found.st_mtime_ns, found.st_ctime_ns), found)


def _is_past(moment: int, found: os.stat_result) -> bool:
    # File systems that keep whole seconds show it; there a tick is a long time.
    tick = _COARSE_TICK if found.st_ctime_ns % 1_000_000_000 == 0 else _TICK
    return time.time_ns() - moment > tick
