"""A lease pod before it is anybody's: all is imported, and the service says whose it becomes.

The process has no lease, person or key until then.  It proves by its own projected token which pod
it is, and only to the service's address in its manifest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from gpulease.channel.websocket import WebsocketClient
from gpulease.companion import pod
from gpulease.companion.config import SupervisorConfig
from gpulease.companion.kernels import Companions
from gpulease.protocol import names as protocol
from gpulease.service_tls import trusted
from gpulease.sides.environment import take_mark

log = logging.getLogger("gpulease.companion")

#: Imported before the pod says that it is ready; neither touches a GPU.
_NEEDED = ("gpulease.companion.supervisor", "gpulease.companion.manager")
_PING_SECONDS = 15.0


async def until_claimed(companions: Companions) -> SupervisorConfig | None:
    """Wait until this pod is somebody's; return its lease, ``None`` where it is to end before.

    The environment is the lease's from then on, as if the manifest had said so.

    Raises:
        GPULeaseError: ``bad_settings``; ``companion_failed`` where its environment is broken.
    """
    service, token_file = pod.service_of(os.environ)
    await companions.imported()
    await asyncio.gather(*(asyncio.to_thread(import_module, name) for name in _NEEDED))
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
    take_mark(environment.get(protocol.ENV_LEASE, ""))
    os.environ.update(environment)
    del os.environ[protocol.ENV_WARM]
    return pod.settings(os.environ)


def _settle(answer: asyncio.Future[Any], value: Any) -> None:
    if not answer.done():
        answer.set_result(value)
