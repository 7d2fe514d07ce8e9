"""Contents on their way into a directory: put together beside it, and whole or not there.

Each side has one staging directory, by content hash; ``tree`` moves a content to its place.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

import xxhash

from gpulease.mirror.rules import STAGING

#: A staging directory that nobody wrote to for so long was left by a process that is gone (s).
_STALE = 3600.0
_CHUNK = 2**20


class _Draft:
    """One content, written in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = path.open("xb")
        self._digest = xxhash.xxh3_128()

    def write(self, piece: memoryview | bytes | bytearray) -> None:
        """Append; raises ``OSError`` when there is no room."""
        self._file.write(piece)
        self._digest.update(piece)
        self.size += len(piece)

    def finish(self) -> str:
        """Return the content hash of what was written."""
        self._file.close()
        return self._digest.hexdigest()


class Staging:
    """The contents that one side has put together.

    Args:
        root: the directory that they are for.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._place: Path | None = None
        self._whole: dict[str, Path] = {}
        self._drafts: dict[str, _Draft] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._whole

    def take(self, digest: str, offset: int, size: int, piece: memoryview | bytearray) -> None:
        """Take one piece of a content, in order; what turns out to be another one is dropped.

        Raises:
            OSError: no room.
        """
        if digest in self._whole:
            return
        if offset == 0:
            self._begin(digest)
        draft = self._drafts.get(digest)
        if draft is None or draft.size != offset:
            return  # its beginning was dropped; it is not asked for again in this pass
        try:
            draft.write(piece)
            if draft.size >= size:
                self._finish(digest)
        except OSError:
            self._drop(digest)
            raise

    def copy(self, digest: str, descriptor: int) -> bool:
        """Copy a content from an open file; False when it is another one.

        Raises:
            OSError: no room, or it cannot be read.
        """
        draft = self._begin(digest)
        try:
            while chunk := os.read(descriptor, _CHUNK):
                draft.write(chunk)
            self._finish(digest)
        except OSError:
            self._drop(digest)
            raise
        return digest in self._whole

    def hand_out(self, digest: str, *, last: bool) -> Path | None:
        """Return a file of that content, which is the caller's; None when there is none.

        ``last``: it is not needed again.
        """
        if last:
            return self._whole.pop(digest, None)
        whole = self._whole.get(digest)
        if whole is None:
            return None
        other = self.fresh()
        shutil.copyfile(whole, other)
        return other

    def fresh(self) -> Path:
        """Return a name in the staging directory that nothing has."""
        if self._place is None:
            self._place = self._root / f"{STAGING}{os.getpid()}-{secrets.token_hex(6)}"
            self._place.mkdir(mode=0o700)
        return self._place / secrets.token_hex(8)

    def clear(self) -> None:
        """Remove everything."""
        for digest in list(self._drafts):
            self._drop(digest)
        self._whole.clear()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
            self._place = None

    def sweep(self) -> None:
        """Remove what processes left that are gone."""
        for found in self._root.glob(f"{STAGING}*"):
            with suppress(OSError):
                if found != self._place and time.time() - found.stat().st_mtime > _STALE:
                    shutil.rmtree(found, ignore_errors=True)

    def _begin(self, digest: str) -> _Draft:
        self._drop(digest)
        draft = self._drafts[digest] = _Draft(self.fresh())
        return draft

    def _finish(self, digest: str) -> None:
        draft = self._drafts.pop(digest)
        if draft.finish() == digest:
            self._whole[digest] = draft.path
        else:
            draft.path.unlink(missing_ok=True)

    def _drop(self, digest: str) -> None:
        draft = self._drafts.pop(digest, None)
        if draft is not None:
            with suppress(OSError):  # a full disk was told when it was written to
                draft.finish()
            draft.path.unlink(missing_ok=True)
