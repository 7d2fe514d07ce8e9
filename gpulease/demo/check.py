"""``gpulease demo --check``: the whole round, unattended, against the demo's own hub.

The order of the steps, their time limits and the report.  It goes in by the front door only: HTTP,
live events and websockets through the proxy, as a student's browser does.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

from gpulease.demo import plain
from gpulease.demo.browse import Browser
from gpulease.demo.hub import notebook_text
from gpulease.demo.kernel_socket import CellRun, KernelSocket
from gpulease.demo.notebook import Cell, code_cells
from gpulease.demo.options import NOTEBOOK, PEOPLE, TORCH_NOTEBOOK, DemoOptions
from gpulease.errors import GPULeaseError


class LeaseWatch:
    """Keeps the newest lease of the browser's person and every state it was seen in.

    ``user``: what the service calls them, where that is not what their hub does.
    """

    def __init__(self, browser: Browser, user: str = "") -> None:
        self._browser = browser
        self._user = user
        self._leases: dict[str, dict[str, Any]] = {}
        self._order: list[str] = []
        #: (lease id, state) in the order seen.
        self.history: list[tuple[str, str]] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._follow())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def lease(self) -> dict[str, Any] | None:
        """The newest lease, ended or not."""
        return self._leases[self._order[-1]] if self._order else None

    @property
    def state(self) -> str:
        """Its state, "" where there is none."""
        return str(self.lease["state"]) if self.lease else ""

    @property
    def follows(self) -> bool:
        """Whether the service's events still come; what is shown is old otherwise."""
        return self._task is not None and not self._task.done()

    async def wait_for(self, state: str, *, seconds: float) -> dict[str, Any]:
        """Return the newest lease once it is, or since the last call was, in ``state``.

        Raises:
            GPULeaseError: ``check_failed`` when that did not happen in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while not self.has_been(state):
                    self._changed.clear()
                    await self._wake()
        except TimeoutError:
            raise GPULeaseError(
                "check_failed",
                f"The lease did not become {state} within {seconds:.0f} s; it went through"
                f" {[seen for _, seen in self.history] or 'nothing'}.",
            ) from None
        assert self.lease is not None
        return self.lease

    def has_been(self, state: str) -> bool:
        """Tell whether the newest lease is, or was, in ``state``."""
        return bool(self._order) and (self._order[-1], state) in self.history

    async def _wake(self) -> None:
        assert self._task is not None
        waiting = asyncio.ensure_future(self._changed.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()  # raises what ended it
            raise GPULeaseError("events_lost", "The service closed its event channel.")

    async def _follow(self) -> None:
        async for event in self._browser.service_events():
            leases = event["leases"] if event["type"] == "snapshot" else [event.get("lease")]
            for lease in sorted((each for each in leases if each), key=lambda it: it["created"]):
                if lease["user"] == (self._user or self._browser.user):
                    self._take(lease)
            self._changed.set()

    def _take(self, lease: dict[str, Any]) -> None:
        if lease["id"] not in self._leases:
            self._order.append(lease["id"])
        self._leases[lease["id"]] = lease
        seen = (lease["id"], lease["state"])
        if not self.history or self.history[-1] != seen:
            self.history.append(seen)


Say = Callable[[str], None]

#: Seconds for what nothing else bounds: a loaded machine may be slow.
PATIENCE = 120.0

#: What the two runs of the notebook are compared by.
RESULT = "print(repr(accuracy), len(losses), predictions.tolist())"


@dataclass
class Report:
    """What was done, and how long each step took."""

    say: Say
    steps: list[tuple[str, float]] = field(default_factory=list)
    current: str = ""

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Time one step; the name stays in ``current`` when it fails."""
        self.current, began = name, time.monotonic()
        yield
        seconds = time.monotonic() - began
        self.steps.append((name, seconds))
        self.say(f"ok    {seconds:6.2f} s  {name}")
        self.current = ""


def check_demo(options: DemoOptions, say: Say) -> int:
    """Do the round at a running demo; return 0, or 1 after naming the step that failed."""
    report = Report(say)
    began = time.monotonic()
    try:
        asyncio.run(_round(options, report))
    except (GPULeaseError, TimeoutError, OSError, aiohttp.ClientError) as error:
        reason = str(error) or f"nothing happened in time ({type(error).__name__})"
        say(f"FAILED        {report.current}")
        say(f"              {reason}")
        say(f"              log: {options.log}")
        return 1
    say(f"all {len(report.steps)} steps work, {time.monotonic() - began:.1f} s")
    return 0


async def _round(options: DemoOptions, report: Report) -> None:
    student = PEOPLE[0]
    async with Browser(options.url) as browser:
        async with report.step(f"log in as {student.name}"):
            await browser.log_in(student.name, student.password)
        async with report.step("start the server, without a GPU"):
            await browser.start_server()
        async with report.step("sign in to the lease service"):
            await browser.open_service()
        await _notebook(options, report, browser, NOTEBOOK)
        if importlib.util.find_spec("torch") is not None:
            await _notebook(options, report, browser, TORCH_NOTEBOOK)
        async with report.step("stop the server"):
            await browser.stop_server()


async def _notebook(options: DemoOptions, report: Report, browser: Browser, name: str) -> None:
    async with (
        LeaseWatch(browser) as watch,
        _kernel(browser, report, name) as kernel,
    ):
        result = await _run_notebook(options, report, kernel, watch, name)
        async with report.step("return the GPU"):
            await _run(kernel, "%gpu return", PATIENCE)
            await watch.wait_for("ended", seconds=options.drain + PATIENCE)
    async with report.step("the same notebook in a plain kernel gives the same predictions"):
        expected = await asyncio.to_thread(plain.run_notebook, options.directory, name, RESULT)
        if result != expected:
            raise _wrong(f"With a GPU: {result[:120]}; without: {expected[:120]}")


@asynccontextmanager
async def _kernel(browser: Browser, report: Report, name: str) -> AsyncIterator[KernelSocket]:
    async with report.step("open a kernel over its websocket"):
        kernel_id = await browser.start_kernel(name)
        socket = await browser.connect(kernel_id)
        await _run(socket, "pass", PATIENCE)
    async with socket:
        yield socket


async def _run_notebook(
    options: DemoOptions, report: Report, kernel: KernelSocket, watch: LeaseWatch, name: str
) -> str:
    for cell in code_cells(notebook_text(name)):
        if cell.after_reclaim:
            await _reclaim(options, report, watch)
        async with report.step(f"cell {cell.number:>2}: {cell.title}"):
            run = await _run(kernel, cell.source, options.wait + PATIENCE)
            _check_cell(cell, run, watch)
    return (await _run(kernel, RESULT, PATIENCE)).text.strip()


def _check_cell(cell: Cell, run: CellRun, watch: LeaseWatch) -> None:
    # It may be leaving again already: the time-outs of a check are short, the machine may be slow.
    if cell.on_gpu and not watch.has_been("active"):
        raise _wrong(f"The cell ran, but the lease is {watch.state or 'not there'}")
    if "plt.show" in cell.source and "image/png" not in run.mime_types:
        raise _wrong(f"The plot is missing; the cell showed {sorted(run.mime_types)}")
    if cell.source.startswith("predictions") and "accuracy" not in run.text:
        raise _wrong("The evaluation printed no accuracy")


async def _reclaim(options: DemoOptions, report: Report, watch: LeaseWatch) -> None:
    async with report.step("idle: the lease is warned"):
        await watch.wait_for("warned", seconds=options.idle + options.warm_up + PATIENCE)
    async with report.step("the lease ends, for being idle"):
        lease = await watch.wait_for("ended", seconds=options.warning + options.drain + PATIENCE)
        ended: Any = lease["end"] or {}
        if ended.get("reason") != "idle":
            raise _wrong(f"It ended for {ended.get('reason')!r}: {ended.get('sentence')}")


async def _run(kernel: KernelSocket, code: str, seconds: float) -> CellRun:
    run = await kernel.execute(code, seconds=seconds)
    if run.status != "ok":
        raise GPULeaseError("check_failed", f"The cell failed with {run.error}")
    return run


def _wrong(sentence: str) -> GPULeaseError:
    return GPULeaseError("check_failed", f"{sentence}.")
