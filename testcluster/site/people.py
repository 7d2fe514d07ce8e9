"""Students at a site: each with a browser, a notebook in a server pod and an eye on their lease."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpulease.demo.browse import Browser
from gpulease.demo.check import LeaseWatch
from testcluster.site.site import PASSWORD, Site
from tests.end_to_end.people import LONG, Person

__all__ = ["LONG", "Student", "at_work"]

Student = Person


@asynccontextmanager
async def at_work(site: Site, name: str, notebook: str = "work.ipynb") -> AsyncIterator[Student]:
    """Log in, start the server's pod, open a notebook; stop the server afterwards."""
    async with Browser(site.url, site.tls, site.service) as browser:
        await browser.log_in(name, PASSWORD)
        await browser.spawn(seconds=LONG)
        await browser.visit(f"user/{name}/api/spec.yaml")
        await browser.open_service()
        kernel = await browser.start_kernel(notebook)
        async with (
            await browser.connect(kernel) as socket,
            LeaseWatch(browser, f"{site.prefix}{name}") as watch,
        ):
            try:
                yield Student(browser, socket, watch)
            finally:
                await browser.stop_server(seconds=LONG)
