"""Where values that cannot be copied back are parked, how much of them, and for how long.

The directory is ``ROOT/USER/SERVER/KERNEL/values``: directories 0700, the file 0600, a bound on
what one user may have there and an age at which files are removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

#: Bytes that one user's parked values may take, and seconds that they are kept.
PARK_LIMIT = 2 * 2**30
PARK_EXPIRY = 7 * 86400.0
_DEFAULT_SERVER = "@default"  # "@" is quoted in names, so no server can be called this


@dataclass(frozen=True)
class Parking:
    """The parked values of one user's server.

    Attributes:
        root: "" where nothing can be parked.
        user: whose.
        server: "" is the default server.
        limit: bytes that all parked values of the user may take together.
        expiry: seconds after which parked values are removed.
    """

    root: str = ""
    user: str = ""
    server: str = ""
    limit: int = PARK_LIMIT
    expiry: float = PARK_EXPIRY

    def file(self, kernel_id: str) -> Path | None:
        """Return the file of one home kernel; ``None`` where nothing can be parked."""
        if not self.root:
            return None
        return (
            self._user / (_segment(self.server) or _DEFAULT_SERVER) / _segment(kernel_id) / "values"
        )

    def prepare(self, kernel_id: str) -> int:
        """Make the directory of one home kernel; return how many bytes may be parked there.

        What is parked there already does not count: it is replaced.

        Raises:
            OSError: the directory cannot be made.
        """
        file = self.file(kernel_id)
        if file is None:
            return 0
        directory = Path(self.root).expanduser()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in file.parent.relative_to(directory).parts:
            directory /= part
            directory.mkdir(mode=0o700, exist_ok=True)
            directory.chmod(0o700)
        taken = 0
        for other in self._files():
            if other.parent != file.parent:
                with suppress(FileNotFoundError):
                    taken += other.stat().st_size
        return max(0, self.limit - taken)

    def drop(self, kernel_id: str) -> None:
        """Remove what one home kernel has parked."""
        file = self.file(kernel_id)
        if file is not None:
            _remove(file)

    def sweep(self, now: float | None = None) -> int:
        """Remove the user's files that are older than ``expiry``; return how many."""
        oldest = (time.time() if now is None else now) - self.expiry
        removed = 0
        for file in list(self._files()):
            with suppress(OSError):
                if file.stat().st_mtime < oldest:
                    _remove(file)
                    removed += 1
        return removed

    @property
    def _user(self) -> Path:
        return Path(self.root).expanduser() / _segment(self.user)

    def _files(self) -> Iterator[Path]:
        """The user's files, half-written ones too."""
        if self.root and self.user:
            yield from self._user.glob("*/*/values*")


def _segment(name: str) -> str:
    """Return a name as one part of a path that cannot lead elsewhere."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E") if quoted.startswith(".") else quoted


def _remove(file: Path) -> None:
    with suppress(FileNotFoundError):
        file.unlink()
    with suppress(OSError):  # another file lies there still
        file.parent.rmdir()
