"""Files and folders of one process alone: others may not read them, and the folders go with it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gpulease.errors import GPULeaseError

#: For everything that a process writes: nothing for the group, nothing for others.
UMASK = 0o077
_OTHERS = 0o077


def current_umask() -> int:
    """Return the umask, which can only be asked for by setting it: strictly, for that moment."""
    now = os.umask(UMASK)
    os.umask(now)
    return now


#: How the folders of single processes are called.
PROCESS_FOLDER = "gpulease-process-"


@contextmanager
def whole_file(path: Path, *, replace: bool = False) -> Iterator[IO[bytes]]:
    """Open a file, mode 0600, that stands at ``path`` when all of it is on the disk, or never.

    Raises:
        FileExistsError: one stands there already, and ``replace`` does not say that it may go.
        OSError: it cannot be made.
    """
    descriptor, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if replace:
            Path(unfinished).replace(path)
        else:
            os.link(unfinished, path)  # unlike a rename it replaces nothing
    finally:
        Path(unfinished).unlink(missing_ok=True)


def make_private(path: Path, content: bytes = b"") -> bool:
    """Make a file that does not exist yet, whole or not at all; return whether it was made.

    Raises:
        OSError: it cannot be made.
    """
    if path.exists():
        return False
    try:
        with whole_file(path) as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def require_private(*paths: Path) -> None:
    """Refuse files that another account may read or write, or has made; absent ones are passed.

    Raises:
        GPULeaseError: ``file_open_to_others``.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            status = path.stat()
            if status.st_mode & _OTHERS:
                raise _open_to_others(path, f"its mode is {status.st_mode & 0o777:04o}")
            if status.st_uid not in (os.geteuid(), 0):
                raise _open_to_others(path, f"it belongs to user {status.st_uid}")


def require_closed_folder(*paths: Path) -> None:
    """Refuse files in a folder, or below one, in which any account may put another in their place.

    A folder like ``/tmp``, where nobody may move what is another's (the sticky bit), will do.

    Raises:
        GPULeaseError: ``file_open_to_others``.
    """
    for path in paths:
        for folder in path.resolve().parents:
            with suppress(FileNotFoundError):
                mode = folder.stat().st_mode
                if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                    raise GPULeaseError(
                        "file_open_to_others",
                        f"Any account of this machine may replace {path}: "
                        f"the mode of {folder} is {mode & 0o7777:04o}.",
                        next_step=f"Make it the service's alone: chmod 700 {folder}.",
                    )


def process_folder() -> Path:
    """Make a folder for as long as this process lives; it removes it at its end.

    A process that is killed cannot: the next one that makes such a folder removes those of whom
    nobody lives any more.  The system gives up a dead process's lock, so a lock is the proof.

    Raises:
        OSError: none can be made.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{PROCESS_FOLDER}*"):
        with suppress(OSError):  # somebody else's, in use, or removed by another at this moment
            _remove_left(old)
    while True:
        made = Path(tempfile.mkdtemp(prefix=PROCESS_FOLDER))
        with suppress(FileNotFoundError):  # another process was quicker than our lock
            if _held(made):
                return made


def _held(folder: Path) -> bool:
    """Lock a folder until this process ends; tell whether it is still there."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # a file system without locks: nobody removes anything there
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if folder.exists():
        return True
    os.close(descriptor)
    return False


def _remove_left(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def _open_to_others(path: Path, why: str) -> GPULeaseError:
    return GPULeaseError(
        "file_open_to_others",
        f"{path} can be read or changed by other accounts of this machine: {why}.",
        next_step=f"Make it the service's alone: chmod 600 {path}, and look who read it meanwhile.",
    )
