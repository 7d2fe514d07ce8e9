"""What ``gpulease admin login`` keeps: a service's address and a person's token, for them alone."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpulease.errors import GPULeaseError
from gpulease.private_files import make_private, require_private


class Login(NamedTuple):
    """Empty where nothing is kept."""

    url: str = ""
    token: str = ""


def place() -> Path:
    """Return the file's path (the XDG base directory specification)."""
    root = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(root, "gpulease", "admin.json")


def read() -> Login:
    """Return what is kept.

    Raises:
        GPULeaseError: ``file_open_to_others``, ``unreadable_file``.
    """
    path = place()
    require_private(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Login(str(found["url"]), str(found["token"]))
    except FileNotFoundError:
        return Login()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GPULeaseError(
            "unreadable_file",
            f"{path} cannot be read ({type(error).__name__}).",
            next_step="`gpulease admin logout` removes it.",
        ) from error


def keep(login: Login) -> Path:
    """Keep it in place of an older one; return where."""
    path = place()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    forget()
    make_private(path, json.dumps(login._asdict()).encode())
    return path


def forget() -> bool:
    """Remove what is kept; say whether there was something."""
    with suppress(FileNotFoundError):
        place().unlink()
        return True
    return False
