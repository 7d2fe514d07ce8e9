"""The supervisor's process: from its command line to its exit status.

A notebook server starts it and writes one JSON line to stdin (at once, or later when the supervisor
is started ahead); a person or a home kernel starts it with a connection file, without a hub.  A
lease pod's process is ``pod``.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import ipaddress
import json
import logging
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import zmq

from gpulease.companion import tree
from gpulease.companion.config import SupervisorConfig
from gpulease.companion.kernels import Companions
from gpulease.companion.pod import LOG_FORMAT
from gpulease.companion.supervisor import Supervisor
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_LEASE, PROTOCOL_VERSION
from gpulease.protocol.service import ConnectionView, DeviceView
from gpulease.sides.environment import take_mark
from gpulease.system.private_files import process_folder

log = logging.getLogger("gpulease.companion")
_LINE = 2**20


def main() -> int:
    """Run a supervisor for the notebook server or kernel that started this process.

    A person's command line is ``launch.add_parsers``.
    """
    parser = argparse.ArgumentParser(prog="gpulease companion")
    parser.add_argument("--connection-file", type=Path)
    parser.add_argument("--ip", default="127.0.0.1")
    parser.add_argument("--park-dir", default="")
    parser.add_argument("--standby", action="store_true")  # seen in a list of processes
    return run(parser.parse_args())


def run(arguments: argparse.Namespace, *, watch_parent: bool = True) -> int:
    """Run what the arguments say."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    parent = os.getppid() if watch_parent else None
    os.umask(0o077)
    directory = process_folder()  # for connection files
    try:
        return asyncio.run(_run(arguments, parent, directory))
    except GPULeaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run(arguments: argparse.Namespace, parent: int | None, directory: Path) -> int:
    tree.become_subreaper()
    first_mark = os.environ.get(ENV_LEASE, "").strip()
    if not first_mark:
        first_mark = f"starting-{secrets.token_hex(8)}"
        take_mark(first_mark)
    companions = Companions(directory, first_mark)
    await companions.prepare()
    gone = asyncio.Event()
    if parent is not None:
        _watch_parent(parent, gone.set)
    stdin = None
    if arguments.connection_file is None:
        stdin = await _stdin()
        config = await _told(stdin, gone)
        if config is None:
            await tree.end_tree({first_mark}, os.getpid(), grace=0.5)
            await companions.clean_up()
            return 0
    else:
        config = standalone_config(arguments.ip, arguments.park_dir)
    take_mark(config.lease_id)
    marks = {first_mark, config.lease_id}
    opened = (lambda: _say({"type": "opened"})) if stdin is not None else lambda: None
    supervisor = Supervisor(config, companions, marks, opened)
    supervisor.spawn(_until(gone, supervisor.parent_gone))
    if stdin is not None:
        supervisor.spawn(_obey(stdin, supervisor))
        _say({"type": "ready", "pid": os.getpid()})
        return _status(await supervisor.run())
    written = write_connection(arguments.connection_file, supervisor)
    with removed_at_end(written):
        log.info("ready. In a notebook: %%gpu connect %s  Ctrl-C here ends it.", written.resolve())
        return _status(await supervisor.run())


def _say(message: dict[str, Any]) -> None:
    """Tell the notebook server something; its end of stdout may be gone."""
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _status(reason: str) -> int:
    log.info("the lease ended: %s", reason)
    return 0


async def _until(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


async def _told(stdin: asyncio.StreamReader, gone: asyncio.Event) -> SupervisorConfig | None:
    """Wait to be told for whom this is; None when the notebook server is gone."""
    line = asyncio.ensure_future(stdin.readline())
    orphaned = asyncio.ensure_future(gone.wait())
    await asyncio.wait((line, orphaned), return_when=asyncio.FIRST_COMPLETED)
    orphaned.cancel()
    if not line.done() or not line.result().endswith(b"\n"):
        line.cancel()
        return None
    try:
        found = json.loads(line.result())
    except ValueError as error:
        raise GPULeaseError("malformed", "The supervisor was told something not JSON.") from error
    return SupervisorConfig.from_json(found)


async def _obey(stdin: asyncio.StreamReader, supervisor: Supervisor) -> None:
    while line := await stdin.readline():
        try:
            await supervisor.on_order(json.loads(line))
        except (ValueError, KeyError, AttributeError):
            log.exception("an order of the notebook server could not be followed")
    supervisor.parent_gone()


async def _stdin() -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _watch_parent(parent: int, gone: Callable[[], None]) -> None:
    """Call ``gone`` once the process ``parent`` has ended."""
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(parent)
    except ProcessLookupError:
        gone()
        return
    if os.getppid() != parent:  # it ended before it was watched, and the number may be another's
        os.close(fd)
        gone()
        return

    def ended() -> None:
        loop.remove_reader(fd)
        with suppress(OSError):
            os.close(fd)
        gone()

    loop.add_reader(fd, ended)


# Without a hub a connection file takes the place of the lease service.  It lives as long as the
# lease, and the devices are those that this machine shows.

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
    # Nobody who waits for the file reads half of it.
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
