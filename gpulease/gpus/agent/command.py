"""``gpulease agent``: reads its options, runs the agent, ends at a signal.

The options' names are in ``arguments``.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
from pathlib import Path

from gpulease.errors import GPULeaseError
from gpulease.gpus.agent.arguments import ENV_NODE
from gpulease.gpus.agent.posting import Target, checked
from gpulease.gpus.agent.run import Agent, Options
from gpulease.protocol.names import ENV_SERVICE_URL, ENV_TOKEN_FILE

log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Run the agent until a signal ends it.

    Raises:
        GPULeaseError: an option is wrong.
    """
    level = logging.getLevelNamesMapping()[arguments.log_level]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_run(options_of(arguments)))
    return 0


def options_of(arguments: argparse.Namespace) -> Options:
    """Return what the command line and the environment say.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    url = arguments.service or os.environ.get(ENV_SERVICE_URL, "")
    token_file = arguments.token_file or os.environ.get(ENV_TOKEN_FILE, "")
    if not url:
        raise _missing("service", ENV_SERVICE_URL, "the address of the lease service")
    if not token_file:
        raise _missing("token-file", ENV_TOKEN_FILE, "the file with the pod's projected token")
    if not 1 <= arguments.every_held <= min(arguments.every, 8) or arguments.every > 60:
        raise GPULeaseError(
            "bad_option",
            "The seconds between two batches make no sense.",
            next_step="Give --every-held from 1 to 8 and --every from that to 60.",
        )
    if not 0 <= arguments.port <= 65535:
        raise GPULeaseError(
            "bad_option",
            f"--port is {arguments.port}.",
            next_step="Give a port from 0 (any free one) to 65535.",
        )
    ca_file = Path(arguments.ca_file) if arguments.ca_file else None
    return Options(
        target=checked(Target(url, Path(token_file), ca_file), plain=arguments.plain_http),
        node=arguments.node or os.environ.get(ENV_NODE, "") or socket.gethostname(),
        ledger=Path(arguments.ledger) if arguments.ledger else None,
        socket=Path(arguments.kubelet_socket),
        proc=Path(arguments.proc),
        host=arguments.host,
        port=arguments.port,
        every=arguments.every,
        every_held=arguments.every_held,
    )


async def _run(options: Options) -> None:
    agent = Agent(options)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        await agent.open()
        log.info("watching the GPUs of node %s", options.node)
        broken = asyncio.create_task(agent.failed())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait({broken, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if broken.done():
            broken.result()
        broken.cancel()
    except OSError as error:
        at = f" of {options.host}" if options.host else ""
        raise GPULeaseError(
            "bad_option",
            f"Nothing can listen on port {options.port}{at}: {error.strerror or error}.",
            next_step="Give another --host or --port, or end the process that has it.",
        ) from error
    finally:
        await agent.close()
        if agent.hangs:
            log.warning("the driver does not come back: ending without it")
            logging.shutdown()
            os._exit(0)  # a thread inside the driver cannot be ended, and would be waited for


def _missing(option: str, variable: str, what: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_option",
        f"Nobody said {what}.",
        next_step=f"Give --{option} or set {variable}.",
    )
