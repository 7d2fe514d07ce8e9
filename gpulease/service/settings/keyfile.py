"""The service's own secret: credentials of local leases and browsers' cookies are derived from it.

It stands in a file of its own, not in the database: whoever reads a backup or the tables has no
credential by that.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from sqlalchemy.engine import make_url

from gpulease.errors import GPULeaseError
from gpulease.private_files import make_private, require_private

_BYTES = 32


def default_path(database_url: str) -> Path:
    """Return where the key lies when no option says it: beside a SQLite file, else here."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(f"{url.database}.key")
    return Path("gpulease.key")


def read_or_make(path: Path) -> bytes:
    """Return the key; the first call makes it.

    Raises:
        GPULeaseError: ``file_open_to_others``, or ``bad_key_file``: it cannot be read or made, or
            holds something else.
    """
    try:
        make_private(path, f"{secrets.token_hex(_BYTES)}\n".encode())
        require_private(path)
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no key"
        raise _bad(path, str(why)) from error
    if len(key) != _BYTES:
        raise _bad(path, "it holds no key")
    return key


def _bad(path: Path, why: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_key_file",
        f"The service's key file {path} cannot be used: {why}.",
        next_step="Name a file in a folder that the service may write (GPULeaseService.key_file)."
        " Without its key, running leases end and people log in again.",
        status=500,
    )
