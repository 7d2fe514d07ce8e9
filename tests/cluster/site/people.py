"""Students at a site: each with a browser, a notebook in a server pod and an eye on their lease."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gpulease.demo.browse import Browser
from gpulease.demo.kernel_socket import CellRun, KernelSocket
from gpulease.demo.watch import LeaseWatch
from tests.cluster.site.site import PASSWORD, Site

#: Seconds; the machine may be busy.
LONG = 180.0


@dataclass
class Student:
    """Somebody at work; `kernel` is the home kernel's websocket."""

    browser: Browser
    kernel: KernelSocket
    watch: LeaseWatch

    async def run(self, code: str, *, seconds: float = LONG) -> CellRun:
        """Run a cell that is to work."""
        done = await self.kernel.execute(code, seconds=seconds)
        assert done.status == "ok", f"{code!r} failed with {done.error}; it showed {done.text}"
        return done


@asynccontextmanager
async def at_work(site: Site, name: str, notebook: str = "work.ipynb") -> AsyncIterator[Student]:
    """Log in, start the server's pod, open a notebook; stop the server afterwards."""
    async with Browser(site.url) as browser:
        await browser.log_in(name, PASSWORD)
        await browser.spawn(seconds=LONG)
        await browser.visit(f"user/{name}/api/spec.yaml")
        await browser.open_service()
        kernel = await browser.start_kernel(notebook)
        async with await browser.connect(kernel) as socket, LeaseWatch(browser) as watch:
            try:
                yield Student(browser, socket, watch)
            finally:
                await browser.stop_server(seconds=LONG)
