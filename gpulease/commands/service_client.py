"""Which lease service a command talks to, and with which token.

It needs the base install alone: so does every command of a notebook server.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol
from gpulease.system.private_files import make_private, require_private


class Login(NamedTuple):
    """What ``gpulease admin login`` keeps, for one person alone; empty where nothing is kept."""

    url: str = ""
    token: str = ""


def login_file() -> Path:
    """Return the file's path (the XDG base directory specification)."""
    root = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(root, "gpulease", "admin.json")


def read_login() -> Login:
    """Return what is kept.

    Raises:
        GPULeaseError: ``file_open_to_others``, ``unreadable_file``.
    """
    path = login_file()
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


def keep_login(login: Login) -> Path:
    """Keep it in place of an older one; return where."""
    path = login_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    forget_login()
    make_private(path, json.dumps(login._asdict()).encode())
    return path


def forget_login() -> bool:
    """Remove what is kept; say whether there was something."""
    with suppress(FileNotFoundError):
        login_file().unlink()
        return True
    return False


def client_of(given: str | None, *, timeout: float = 30.0) -> ServiceClient:
    """Return the client of the service that is named here or in the environment.

    ``timeout``: seconds that one call may take.

    Raises:
        GPULeaseError: ``no_service``, ``no_token``, ``bad_option``.
    """
    kept = read_login()
    url = given or os.environ.get(protocol.ENV_SERVICE_URL) or kept.url
    token = os.environ.get("GPULEASE_TOKEN", "")
    if not token and kept.token and same_service(url, kept.url):
        token = kept.token  # a token is shown to no other service than the one it was given for
    token = token or os.environ.get("JUPYTERHUB_API_TOKEN", "")
    if not url:
        raise GPULeaseError(
            "no_service",
            "It is not known where the lease service is.",
            next_step=f"`gpulease admin login --url URL` keeps it; or set"
            f" {protocol.ENV_SERVICE_URL}.",
        )
    if not token:
        raise GPULeaseError(
            "no_token",
            "There is no token to prove who you are.",
            next_step="Make one on the hub's Token page; `gpulease admin login` asks for it.",
        )
    return ServiceClient(checked(url), token, timeout=timeout)


def same_service(one: str, other: str) -> bool:
    """Say whether two addresses are of the same service."""
    return one.rstrip("/") == other.rstrip("/")


def checked(url: str) -> str:
    """Return the address itself.

    Raises:
        GPULeaseError: ``bad_option``: it is none.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port above 65535, a bracket that stays open
        fits = False
    if not fits:
        raise GPULeaseError(
            "bad_option",
            f"{url!r} is not an address of the lease service.",
            next_step="Give one such as https://hub.example.org/services/gpulease/.",
        )
    return url
