"""``gpulease companion --pod``: a lease in a pod of its own.

Settings come from the environment that the manifest sets; the pod gets a home directory that it may
write to, an exit status, and the last line that a provider shows.  There is no parent and no stdin:
the end comes from the service, from SIGTERM, or from the clock.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from gpulease.companion.config import SupervisorConfig
from gpulease.errors import GPULeaseError
from gpulease.private_files import process_folder
from gpulease.protocol import names as protocol
from gpulease.sides.environment import is_lease_id

#: Exit status by the reason of a refusal; anything else unexpected is 1.
STATUS = {"bad_settings": 2, "bad_address": 3}
#: Where Kubernetes lets a container leave a word about its end.
_TERMINATION_LOG = Path("/dev/termination-log")
#: Kept of the grace for ending processes and saying goodbye (seconds).
END_SECONDS = 4.0


def settings(environ: Mapping[str, str]) -> SupervisorConfig:
    """Return the lease that the pod's manifest describes.

    Raises:
        GPULeaseError: ``bad_settings`` naming the variable.
    """
    lease_id = environ.get(protocol.ENV_LEASE, "").strip()
    if not is_lease_id(lease_id):
        raise _bad(protocol.ENV_LEASE, "it must be a lease id")
    url, token_file = service_of(environ)
    ip = environ.get(protocol.ENV_POD_IP, "")
    if not re.fullmatch(r"\d+(\.\d+){3}", ip) or ip == "0.0.0.0":  # noqa: S104 - refused
        raise _bad(protocol.ENV_POD_IP, "it must be the pod's one IPv4 address")
    mirror = environ.get(protocol.ENV_MIRROR, "")
    if mirror and not Path(mirror).is_absolute():
        raise _bad(protocol.ENV_MIRROR, "it must be an absolute path")

    def read(name: str, parse: Callable[[str], Any], default: Any, wanted: str) -> Any:
        text = environ.get(name, "").strip()
        try:
            return parse(text) if text else default
        except ValueError:
            raise _bad(name, f"it must be {wanted}") from None

    seconds = "a positive number of seconds"
    return SupervisorConfig(
        lease_id=lease_id,
        attempt=read(protocol.ENV_ATTEMPT, int, 1, "a whole number"),
        service_url=url,
        token_file=token_file,
        ip=ip,
        ports=read(protocol.ENV_PORTS, _ports, protocol.DEFAULT_PORTS, "LOWEST-HIGHEST"),
        hard_end=read(protocol.ENV_HARD_END, _moment, "", "an ISO time with its offset"),
        grace=read(protocol.ENV_GRACE, _positive, 30.0, seconds),
        drain_max=read(protocol.ENV_DRAIN_MAX, _positive, 60.0, seconds),
        mirror=mirror,
        mirror_limit=read(protocol.ENV_MIRROR_LIMIT, _number, 2 * 2**30, "a number of bytes"),
        park_dir=_park(environ.get(protocol.ENV_PARK, ""), mirror),
        user=environ.get(protocol.ENV_USER, ""),
        server=environ.get(protocol.ENV_SERVER, ""),
        in_container=True,
        count=read(protocol.ENV_COUNT, _number, 0, "a whole number"),
        nodes=read(protocol.ENV_NODE_COUNT, _number, 1, "a whole number from 1") or 1,
        rank=read(protocol.ENV_RANK, _number, 0, "a whole number"),
    )


def service_of(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the service's address and the file of the token that proves this pod to it.

    Raises:
        GPULeaseError: ``bad_settings`` naming the variable.
    """
    url = environ.get(protocol.ENV_SERVICE_URL, "")
    if not re.match(r"https?://", url):
        raise _bad(protocol.ENV_SERVICE_URL, "it must be a URL with scheme and host")
    token_file = environ.get(protocol.ENV_TOKEN_FILE, "")
    if not token_file:
        raise _bad(protocol.ENV_TOKEN_FILE, "it must name the projected token's file")
    return url, token_file


def directory() -> Path:
    """Make this process's private directory, and its home where it has none that it may write to.

    The image's file system may be read-only, and this user may own nothing in it.

    Raises:
        GPULeaseError: ``bad_settings`` when no directory for temporary files is writable.
    """
    try:
        found = process_folder()
    except OSError:
        raise _bad("TMPDIR", "no directory for temporary files is writable") from None
    home = os.environ.get("HOME", "")
    if not home or not os.access(home, os.W_OK | os.X_OK):
        os.environ["HOME"] = str(found)
    return found


def leave_early() -> None:
    """Until the supervisor heeds SIGTERM itself, it ends the process.

    The first process of a container ignores signals that it has no handler for.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def last_words(sentence: str, termination_log: Path = _TERMINATION_LOG) -> None:
    """Leave the last line on stderr and, in a container, where Kubernetes reads it."""
    sys.stderr.write(f"gpulease.companion: {sentence}\n")
    sys.stderr.flush()
    if termination_log.exists():
        with suppress(OSError):  # the line on stderr stands
            termination_log.write_text(sentence)


def _park(directory: str, mirror: str) -> str:
    """Return where values may be parked: not where they would go with the pod."""
    inside = bool(mirror) and Path(os.path.normpath(directory)).is_relative_to(mirror)
    return "" if inside else directory


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def _number(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _ports(text: str) -> tuple[int, int]:
    lowest, _, highest = text.partition("-")
    found = int(lowest), int(highest)
    if not 0 < found[0] <= found[1] < 65536:
        raise ValueError(text)
    return found


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(text)
    return text


def _bad(name: str, why: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_settings",
        f"The lease pod's {name} cannot be used: {why}.",
        next_step="Correct the manifest of lease pods.",
    )
