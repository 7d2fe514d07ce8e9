"""People with their notebooks open at a running demo."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil

from gpulease.demo.browse import Browser
from gpulease.demo.check import LeaseWatch
from gpulease.demo.kernel_socket import CellRun, KernelSocket
from tests.browser.demo import RunningDemo
from tests.helpers import process_is_gone, wait_for, wait_for_async

#: Seconds; the machine may be busy.
LONG = 180.0

RUNAWAY = """%%gpu
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("child", child.pid)"""

#: GPU cells of a run: of two seconds each until this file is there, of no time from then on.
ENOUGH = "enough"
WORK = [
    "%%gpu\nimport os, time\nfor _ in range(20):\n"
    f"    if os.path.exists({ENOUGH!r}):\n        break\n    time.sleep(0.1)\n"
    f"kept.append({number})"
    for number in range(60)
]


@dataclass
class Person:
    """Somebody with a server, a kernel and an eye on their leases."""

    browser: Browser
    kernel: KernelSocket
    watch: LeaseWatch

    async def run(self, code: str, *, seconds: float = LONG) -> CellRun:
        """Run a cell that is to work."""
        done = await self.kernel.execute(code, seconds=seconds)
        assert done.status == "ok", f"{code!r} failed with {done.error}; it showed {done.text}"
        return done

    async def is_told(self, words: str) -> None:
        """See ``%gpu`` say it: the kernel sees a change on its own way, a moment later."""

        async def said() -> bool:
            return words in (await self.run("%gpu")).text

        await wait_for_async(said, LONG, f"%gpu says {words!r}")

    async def return_gpu(self) -> None:
        """Give the GPU back and see the lease end."""
        await self.run("%gpu return")
        await self.watch.wait_for("ended", seconds=LONG)


@asynccontextmanager
async def at_work(
    demo: RunningDemo, name: str, notebook: str = "test.ipynb", *, tidy: bool = True
) -> AsyncIterator[Person]:
    """Log in, start the server, open a notebook; return what is left if ``tidy``."""
    async with Browser(demo.url) as browser:
        await browser.log_in(name, name)
        await browser.start_server()
        await browser.open_service()
        kernel_id = await browser.start_kernel(notebook)
        async with (
            await browser.connect(kernel_id) as kernel,
            LeaseWatch(browser) as watch,
        ):
            try:
                yield Person(browser, kernel, watch)
            finally:
                if tidy:
                    await _tidy(browser)


async def _tidy(browser: Browser) -> None:
    for kernel in await browser.server_api("GET", "kernels"):
        await browser.server_api("DELETE", f"kernels/{kernel['id']}")
    for lease in (await browser.service_api("GET", "leases?state=live&mine=1"))["items"]:
        await browser.service_api("DELETE", f"leases/{lease['id']}", {"force": True})


async def with_a_runaway(demo: RunningDemo) -> list[int]:
    """Have a lease with a process of its own; return the ids of all that runs."""
    async with at_work(demo, "student", tidy=False) as student:
        said = (await student.run(RUNAWAY)).text
        child = int(said.split("child")[1].split()[0])
        running = [process.pid for process in processes_of(demo)]
        assert child in running
        return running


def end_and_see(demo: RunningDemo, how: signal.Signals, running: list[int]) -> None:
    """Signal the demo's command, and see everything end that ran."""
    assert len(running) >= 6  # command, hub, proxy, service, server, kernel, ...
    psutil.Process(demo.pid).send_signal(how)
    wait_for(lambda: all(map(process_is_gone, running)), 90, "every process has ended")


def processes_of(demo: RunningDemo) -> list[psutil.Process]:
    """Every living process of the demo, the `gpulease demo` command first."""
    command = psutil.Process(demo.pid)
    return [command, *command.children(recursive=True)]


def service_of(demo: RunningDemo) -> psutil.Process | None:
    """The lease service's process, while it runs."""
    return _first(demo, lambda process: {"gpulease.cli", "service"} <= set(process.cmdline()))


def server_of(demo: RunningDemo, user: str, name: str = "") -> psutil.Process | None:
    """The process of somebody's notebook server, while it runs."""

    def theirs(process: psutil.Process) -> bool:
        if "jupyterhub.singleuser" not in process.cmdline():
            return False
        said = process.environ()
        return (said.get("JUPYTERHUB_USER"), said.get("JUPYTERHUB_SERVER_NAME", "")) == (user, name)

    return _first(demo, theirs)


def _first(demo: RunningDemo, wanted: Callable[[psutil.Process], bool]) -> psutil.Process | None:
    for process in processes_of(demo):
        try:
            if wanted(process):
                return process
        except psutil.Error:  # it has just ended
            continue
    return None
