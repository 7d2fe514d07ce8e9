"""The lease service's process: its ordered start and end.

It runs as the hub's managed service or on its own with the same ``JUPYTERHUB_*`` environment.  It
starts where no GPU, no driver and no companion is, and ``health`` says so.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Sequence

from gpulease.errors import GPULeaseError
from gpulease.service import logs
from gpulease.service.rate_limit import allow_files
from gpulease.service.run import RunningService
from gpulease.service.settings.application import GPULeaseService
from gpulease.service.settings.options import Options
from gpulease.system.private_files import UMASK

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the lease service; ``argv`` are the options after the program's name."""
    os.umask(UMASK)
    app = GPULeaseService()
    app.initialize(argv)
    logs.configure(app.log_name.upper())
    if os.geteuid() == 0:
        log.warning(
            "the lease service runs as root, which it never needs: anyone who finds a hole in it"
            " has this machine. Run it as a system user of its own that owns the database's folder",
            extra={"reason": "root"},
        )
    allow_files()
    return _run(app)


def _run(app: GPULeaseService) -> int:
    """Run until SIGTERM or SIGINT; return the exit status."""
    try:
        return asyncio.run(_serve(app.options()))
    except GPULeaseError as error:
        log.critical("%s", error, extra={"reason": error.reason})
        return 1
    except OSError as error:
        log.critical("the service cannot start: %s", error)
        return 1


def spare_the_collector() -> None:
    """Have the garbage collector look at what comes and goes, no longer at all that is loaded.

    Every look at everything held all requests up for 0.15 s, and took a seventh of the time that
    the service worked while a class began.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 20)


async def _serve(options: Options) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    service = RunningService(options)
    await service.open()
    spare_the_collector()
    try:
        failed = asyncio.create_task(service.failed())
        waiting = asyncio.create_task(ended.wait())
        done, rest = await asyncio.wait({failed, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        return 1 if failed in done else 0
    finally:
        await service.close()


if __name__ == "__main__":
    raise SystemExit(main())
