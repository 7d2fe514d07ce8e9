"""Where a notebook server's Unix socket for its kernels is."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from gpulease.private_files import PROCESS_FOLDER, process_folder

_PATH_MAX = 100  # a socket address holds 108 bytes


def socket_path(runtime_dir: Path) -> Path:
    """Return a path that fits into a socket address; ``forget`` it when the socket is closed."""
    name = f"gpulease-{os.getpid()}-{secrets.token_hex(4)}.sock"
    if len(str(runtime_dir / name)) <= _PATH_MAX:
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return runtime_dir / name
    return process_folder() / name


def forget(path: Path) -> None:
    """Remove the directory that ``socket_path`` may have made for a path."""
    if path.parent.name.startswith(PROCESS_FOLDER):
        shutil.rmtree(path.parent, ignore_errors=True)
