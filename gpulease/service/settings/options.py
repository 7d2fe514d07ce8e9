"""Everything that a service is told, as plain values, and what it makes of them by itself.

It makes its own secret: credentials of local leases and browsers' cookies are derived from it.  The
secret stands in a file of its own, not in the database: whoever reads a backup or the tables has no
credential by that.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from gpulease.errors import GPULeaseError
from gpulease.gpus.base import Probe
from gpulease.gpus.nvml import NVMLProbe
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.policy.model import TimeOuts
from gpulease.private_files import make_private, require_private
from gpulease.service.settings.kubernetes import KubernetesSettings
from gpulease.service.settings.reading import FurtherHub
from gpulease.store import Ages

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """Everything the service is told; ``settings`` says what each means."""

    host: str
    port: int
    prefix: str
    hub_path: str
    database_url: str
    key_file: Path | None = None  # None: beside the database
    hub_origin: str = ""
    docs_url: str = ""  # where people read more; "" is the service itself
    card_acts: bool = False  # the card on the hub's page may change something
    tls: ssl.SSLContext | None = None  # what is shown to whoever connects; None listens without
    gpus: int = 0
    gpu_name: str = "Simulated GPU"
    gpu_memory: int = 16 * 2**30
    simulate: bool = False
    policy_file: Path | None = None
    first_policy_file: Path | None = None
    first_time_outs: Mapping[str, float] = field(default_factory=dict)
    park_dir: str = ""
    park_limit: int = 2 * 2**30  # bytes
    park_expiry: float = 7 * 86400.0  # seconds
    tick: float = 1.0
    hub_seconds: float = 10.0
    lost_seconds: float = 15.0
    ages: Ages = field(default_factory=Ages)
    connections_max: int = 2000
    metrics_at: tuple[str, int] | None = None  # host and port for Prometheus alone
    request_seconds: float = 30.0  # for a request's headers, and for its body
    smtp: str = ""  # the relay by which people are told; "" sends no e-mail
    smtp_login: tuple[str, str] | None = field(default=None, repr=False)
    mail_from: str = "gpulease@localhost"
    webhook: str = ""  # where notices are posted
    cluster: KubernetesSettings | None = None  # where leases are pods; None is this machine
    hubs: tuple[FurtherHub, ...] = ()  # that use it beside the first


def secret_of(options: Options, hub_token: str) -> bytes:
    """Return what credentials and cookies are derived from.

    Lease pods prove themselves by tokens of the cluster's, so that there only cookies depend on it:
    the hub's token serves, and no file has to be kept.

    Raises:
        GPULeaseError: ``bad_key_file``, ``file_open_to_others``.
    """
    if options.key_file is None and options.cluster is not None:
        return hmac.new(hub_token.encode(), b"gpulease", hashlib.sha256).digest()
    return read_or_make_key(options.key_file or key_path(options.database_url))


def choose_probe(options: Options) -> Probe:
    """Return what reads the devices: the driver where there is one, else simulated ones.

    A driver that does not work stays the choice: nobody is given a simulated GPU for a real one.
    """
    if not options.simulate:
        real = NVMLProbe()
        if real.inventory() or real.installed or not options.gpus:
            return real
        log.info("no NVIDIA driver (%s): simulated GPUs are offered", real.problem)
        real.close()
    return SimulatedProbe(options.gpus, name=options.gpu_name, memory=options.gpu_memory)


def first_time_outs(given: Mapping[str, float]) -> TimeOuts:
    """Return the time-outs of a first policy.

    Raises:
        GPULeaseError: ``bad_option``: there is none of such a name.
    """
    unknown = set(given) - set(TimeOuts.__dataclass_fields__)
    if unknown:
        raise GPULeaseError(
            "bad_option",
            f"There are no time-outs named {', '.join(sorted(unknown))}.",
            next_step=f"Use some of {', '.join(sorted(TimeOuts.__dataclass_fields__))}.",
        )
    changed: dict[str, Any] = {**given}
    if "keeps" in changed:
        changed["keeps"] = int(changed["keeps"])
    return replace(TimeOuts(), **changed)


_BYTES = 32


def key_path(database_url: str) -> Path:
    """Return where the key lies when no option says it: beside a SQLite file, else here."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(f"{url.database}.key")
    return Path("gpulease.key")


def read_or_make_key(path: Path) -> bytes:
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
