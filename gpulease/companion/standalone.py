"""A lease without a hub: a connection file takes the place of the lease service.

The file lives as long as the lease.  The devices are those that this machine shows.
"""

from __future__ import annotations

import getpass
import ipaddress
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from gpulease.companion.config import SupervisorConfig
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import PROTOCOL_VERSION
from gpulease.protocol.service import ConnectionView, DeviceView

if TYPE_CHECKING:
    from gpulease.companion.supervisor import Supervisor

_DRIVER = Path("/proc/driver/nvidia/gpus")
_WILDCARDS = ("0.0.0.0", "::", "*", "")  # noqa: S104 - named to be refused


def standalone_config(ip: str, park_dir: str) -> SupervisorConfig:
    """Return a lease of whatever this machine shows.

    Raises:
        GPULeaseError: ``bad_address`` when notebooks could not reach ``ip``.
    """
    if ip in _WILDCARDS or not _is_ours(ip):
        raise GPULeaseError(
            "bad_address",
            f"{ip!r} is not one address of this machine.",
            next_step="Give --ip an address by which the notebook's machine reaches this one.",
        )
    return SupervisorConfig(
        lease_id=f"local-{secrets.token_hex(6)}", ip=ip, user=getpass.getuser(), park_dir=park_dir
    )


def check_paths(connection_file: Path, park_dir: str) -> None:
    """Refuse, before anything is started, files that could not be written at its end.

    Raises:
        GPULeaseError: ``bad_option`` names the path and why.
    """
    folder = connection_file.parent
    if connection_file.is_dir():
        raise _unusable("--connection-file", connection_file, "a directory", "Name a file in it.")
    if not folder.is_dir():
        raise _unusable("--connection-file", connection_file, "in no directory", "Make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(
            "--connection-file",
            connection_file,
            "in a directory that cannot be written",
            "Name another.",
        )
    if park_dir and Path(park_dir).exists() and not Path(park_dir).is_dir():
        raise _unusable("--park-dir", Path(park_dir), "no directory", "Name a directory.")


def _unusable(option: str, path: Path, why: str, next_step: str) -> GPULeaseError:
    return GPULeaseError("bad_option", f"{option}: {path} is {why}.", next_step=next_step)


def _is_ours(ip: str) -> bool:
    """Tell whether this is one of this machine's own addresses: only on those can one listen."""
    try:
        ipaddress.IPv4Address(ip)  # a name may lead elsewhere tomorrow
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((ip, 0))
    except (ValueError, OSError):
        return False
    return True


def write_connection(path: Path, supervisor: Supervisor) -> Path:
    """Admit a new client key and write it with the lease's address to ``path`` (mode 0600)."""
    public, secret = zmq.curve_keypair()
    supervisor.control.admit(public.decode(), "")
    devices = visible_devices()
    view = ConnectionView(
        lease_id=supervisor.config.lease_id,
        address=supervisor.control.endpoint.address,
        server_key=supervisor.control.endpoint.server_key,
        protocol=PROTOCOL_VERSION,
        simulated=not devices,
        gpu_class="local",
        devices=devices,
        client_public_key=public.decode(),
        client_secret_key=secret.decode(),
    )
    # Whoever waits for the file shall never read half of it.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(view, file)
    draft.replace(path)
    return path


@contextmanager
def removed_at_end(path: Path) -> Iterator[None]:
    """Remove the connection file when the lease is over."""
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def visible_devices(driver: Path = _DRIVER) -> list[DeviceView]:
    """Return the GPUs that the driver shows and ``CUDA_VISIBLE_DEVICES`` does not hide."""
    devices = []
    for file in sorted(driver.glob("*/information")):
        lines = file.read_text(errors="replace").splitlines()
        pairs = (line.partition(":") for line in lines)
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        uuid, name = fields.get("GPU UUID", ""), fields.get("Model", "GPU")
        devices.append(DeviceView(uuid=uuid, name=name, memory=0, simulated=False))
    return _allowed(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _allowed(devices: list[DeviceView], visible: str | None) -> list[DeviceView]:
    if visible is None:
        return devices
    wanted = [part.strip() for part in visible.split(",") if part.strip()]
    return [
        device
        for number, device in enumerate(devices)
        if str(number) in wanted or any(device["uuid"].startswith(w) for w in wanted if len(w) > 3)
    ]
