"""A whole hub to measure on: real JupyterHub, proxy, lease service and servers, as in the demo."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kernels import CellError
from benchmarks.measure import progress
from gpulease.companion import tree
from gpulease.demo import launch
from gpulease.demo.browse import Browser
from gpulease.demo.kernel_socket import CellRun, KernelSocket
from gpulease.demo.options import NOTEBOOK, PEOPLE, DemoOptions

#: Time-outs so long that nothing leaves by itself while it is measured (seconds).
NEVER = 3600.0


@contextmanager
def hub(gpus: int, *, not_ahead: tuple[str, ...] = ()) -> Iterator[DemoOptions]:
    """Start a demo hub with simulated GPUs on free ports; end every process of it afterwards.

    The servers of `not_ahead` start no supervisor before they have a lease.
    """
    tree.become_subreaper()
    with tempfile.TemporaryDirectory(prefix="gpulease-bench-", ignore_cleanup_errors=True) as made:
        options = DemoOptions(
            directory=Path(made),
            ports=launch.choose_ports(0),
            gpus=gpus,
            simulate=True,
            idle=NEVER,
            quiet=NEVER,
        ).check()
        for name in not_ahead:
            _configure(options, name, {"GPULeaseLab": {"standby": False}})
        demo = launch.Demo(options, progress)
        try:
            demo.start()
            yield options
        finally:
            demo.stop()


def _configure(options: DemoOptions, name: str, settings: dict[str, Any]) -> None:
    """Write the settings of one person's own server, as that person could."""
    file = options.directory / "homes" / name / ".jupyter" / "jupyter_gpulease_config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(settings))


@asynccontextmanager
async def person(options: DemoOptions, name: str) -> AsyncIterator[Browser]:
    """Log one of the demo's people in, at the hub and at the lease service."""
    password = next(each.password for each in PEOPLE if each.name == name)
    async with Browser(options.url) as browser:
        await browser.log_in(name, password)
        await browser.open_service()
        yield browser


@asynccontextmanager
async def notebook(options: DemoOptions, name: str) -> AsyncIterator[tuple[Browser, KernelSocket]]:
    """Give a person with a running server and an open notebook."""
    async with person(options, name) as browser:
        await browser.start_server()
        kernel_id = await browser.start_kernel(NOTEBOOK)
        async with await browser.connect(kernel_id) as socket:
            await run(socket, "pass")
            yield browser, socket


async def run(socket: KernelSocket, source: str) -> CellRun:
    """Run a cell; a failure ends the benchmark."""
    cell = await socket.execute(source, seconds=300)
    if cell.status != "ok":
        raise CellError(f"{source!r} failed: {cell.error}\n{cell.text}")
    return cell


class Watch:
    """The service's live events as one person sees them, with the time each was seen."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.classes: list[dict[str, Any]] = []
        self._news = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def of(cls, browser: Browser) -> AsyncIterator[Watch]:
        """Watch with this person's eyes."""
        watch = cls()
        reader = asyncio.create_task(watch._read(browser))
        try:
            await watch.until(lambda: bool(watch.classes))
            yield watch
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> float:
        """Wait for the event that makes `condition` true; return when it came."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(condition)
            return time.perf_counter()

    def all_free(self) -> bool:
        """Tell whether nobody has a lease and every device can be granted."""
        live = any(lease["state"] != "ended" for lease in self.leases.values())
        return not live and all(each["free"] == each["total"] for each in self.classes)

    def draining(self) -> bool:
        """Tell whether the one lease there is has begun to leave."""
        return any(lease["state"] in ("draining", "ended") for lease in self.leases.values())

    def forget_ended(self) -> None:
        """Drop what has ended, so that ``draining`` speaks of the next lease."""
        self.leases = {i: each for i, each in self.leases.items() if each["state"] != "ended"}

    async def _read(self, browser: Browser) -> None:
        async for event in browser.service_events():
            async with self._news:
                for lease in [*event.get("leases", []), *filter(None, [event.get("lease")])]:
                    self.leases[lease["id"]] = lease
                self.classes = event.get("classes", self.classes)
                self._news.notify_all()
