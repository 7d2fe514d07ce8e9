"""``gpulease companion --pod``: a lease in a pod of its own.

Settings come from the environment that the manifest sets; the pod gets a home directory that it may
write to, an exit status, and the last line that a provider shows.  There is no parent and no stdin:
the end comes from the service, from SIGTERM, or from the clock.

The companion's process is started before what a supervisor needs is imported, so that both import
at once: only the light part of the standard library may be imported here.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulease.companion.ahead import Spawned, spawn
from gpulease.companion.config import SupervisorConfig
from gpulease.errors import GPULeaseError
from gpulease.protocol import names as protocol
from gpulease.protocol.names import ENV_LEASE, ENV_WARM
from gpulease.sides.environment import is_lease_id, marked_environment, take_mark
from gpulease.system.private_files import process_folder

if TYPE_CHECKING:
    import asyncio

    from gpulease.channel.websocket import WebsocketClient
    from gpulease.companion.kernels import Companions

log = logging.getLogger("gpulease.companion")
LOG_FORMAT = "gpulease.companion %(levelname)s %(message)s"
_PING_SECONDS = 15.0
#: Exit status by the reason of a refusal; anything else unexpected is 1.
STATUS = {"bad_settings": 2, "bad_address": 3}
#: Where Kubernetes lets a container leave a word about its end.
_TERMINATION_LOG = Path("/dev/termination-log")


def run() -> int:
    """Run until the lease ends; the status and the last line say how it ended."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT)
    leave_early()
    os.umask(0o077)
    directory: Path | None = None
    try:
        config = None if os.environ.get(ENV_WARM) else settings(os.environ)
        mark = config.lease_id if config is not None else os.environ[ENV_LEASE].strip()
        directory = make_directory()
        environ = marked_environment(os.environ, mark, in_container=True)
        if config is not None and config.rank:
            reason = _serve_member(config)
        else:
            reason = _serve(config, mark, directory, spawn(sys.executable, environ, directory))
    except GPULeaseError as error:
        last_words(f"{error.reason}: {error.sentence} {error.next_step}".rstrip())
        return STATUS.get(error.reason, 1)
    except Exception as error:
        log.exception("the lease's supervisor failed")
        last_words(f"failed: {type(error).__name__}")
        return 1
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
    last_words(f"ended: {reason}")
    return 0


def _serve_member(config: SupervisorConfig) -> str:
    """Serve as a further node of a lease, which has no notebook."""
    import asyncio

    from gpulease.companion import tree
    from gpulease.companion.member import Member

    async def serve() -> str:
        tree.become_subreaper()
        return await Member(config).run()

    return asyncio.run(serve())


def _serve(config: SupervisorConfig | None, mark: str, directory: Path, spawned: Spawned) -> str:
    """Import the rest and serve; a companion whose supervisor fails ends by itself.

    ``config``: None in a pod that stands ready, which learns whose it is once it has imported all.
    """
    import asyncio

    from gpulease.companion import tree
    from gpulease.companion.kernels import Companions
    from gpulease.companion.supervisor import Supervisor

    async def serve() -> str:
        tree.become_subreaper()
        companions = Companions(directory, mark, in_container=True)
        await companions.prepare(spawned)
        told = config
        if told is None:
            told = await until_claimed(companions)
            if told is None:
                await tree.end_tree({mark}, os.getpid(), grace=0.5)
                await companions.clean_up()
                return "not_needed"
        supervisor = Supervisor(told, companions, {mark, told.lease_id})
        return await supervisor.run()

    return asyncio.run(serve())


async def until_claimed(companions: Companions) -> SupervisorConfig | None:
    """Wait until this pod is somebody's; return its lease, ``None`` where it is to end before.

    Until then all is imported, and the process has no lease, person or key.  It proves by its own
    projected token which pod it is, and only to the service's address in its manifest.

    The environment is the lease's from then on, as if the manifest had said so.

    Raises:
        GPULeaseError: ``bad_settings``; ``companion_failed`` where its environment is broken.
    """
    import asyncio

    service, token_file = service_of(os.environ)
    await companions.imported()
    await asyncio.to_thread(import_module, "gpulease.companion.supervisor")  # it touches no GPU
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[dict[str, str] | None] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _settle, answer, None)

    def hear(message: dict[str, Any]) -> None:
        if message.get("type") == "claimed":
            _settle(answer, message["environment"])
        elif message.get("type") == "end":
            _settle(answer, None)

    channel = _channel(service, Path(token_file), hear)
    running = asyncio.ensure_future(channel.run())
    log.info("ready: this pod waits for a lease")
    try:
        environment = await answer
    finally:
        channel.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return _become(environment) if environment is not None else None


def _channel(
    service: str, token_file: Path, hear: Callable[[dict[str, Any]], None]
) -> WebsocketClient:
    from gpulease.channel.websocket import WebsocketClient
    from gpulease.protocol.service_tls import trusted

    url = f"ws{service.rstrip('/').removeprefix('http')}/api/warm"
    return WebsocketClient(
        url,
        headers=lambda: {"Authorization": f"Bearer {token_file.read_text().strip()}"},
        pushed=hear,
        greeting=lambda: {"type": "ready", "protocol": protocol.PROTOCOL_VERSION},
        tls=trusted(url, os.environ),
        ping=_PING_SECONDS,
    )


def _become(environment: dict[str, str]) -> SupervisorConfig:
    # First of all, for it writes where the mark of this process lies now.
    take_mark(environment.get(ENV_LEASE, ""))
    os.environ.update(environment)
    del os.environ[ENV_WARM]
    return settings(os.environ)


def _settle(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def settings(environ: Mapping[str, str]) -> SupervisorConfig:
    """Return the lease that the pod's manifest describes.

    Raises:
        GPULeaseError: ``bad_settings`` naming the variable.
    """
    lease_id = environ.get(ENV_LEASE, "").strip()
    if not is_lease_id(lease_id):
        raise _bad(ENV_LEASE, "it must be a lease id")
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


def make_directory() -> Path:
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
