"""`attach`: from the ask to the first line that a `%%gpu` cell prints.

Each round begins with no lease and a running server: once where the supervisor has to be started,
once where the server started one ahead.  Beside it what hubs do today to change a server's
hardware: stop the server, start it, start a kernel, run a cell; timed to that cell's first line.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.kernels import CellError
from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.stack import Watch, hub, notebook, person, run
from gpulease.demo.browse import Browser
from gpulease.demo.kernel_socket import KernelSocket
from gpulease.demo.options import NOTEBOOK

COLD, AHEAD, RESTART = "cold", "supervisor started ahead", "server restart"
CELL = "%%gpu\nprint('first line')"


async def measure(*, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run the benchmark and return its report."""
    variants = Variants()
    with hub(2, not_ahead=("student",)) as options:
        async with (
            person(options, "admin") as admin,
            Watch.of(admin) as watch,
            notebook(options, "student") as (_, cold),
            notebook(options, "student2") as (_, ahead),
            notebook(options, "instructor") as (peer, _),
        ):
            for number in range(rounds):
                progress(f"attach: round {number + 1} of {rounds}")
                variants.add(COLD, await _attach(cold, watch))
                variants.add(RESTART, await _restart(peer))
                # By now the supervisor that was started ahead after its last use is ready.
                variants.add(AHEAD, await _attach(ahead, watch))
    return report("attach", variants, _aims(variants))


async def _attach(socket: KernelSocket, watch: Watch) -> float:
    cell = await run(socket, CELL)
    if cell.first_line is None:
        raise CellError("the GPU cell printed nothing")
    await run(socket, "%gpu return")
    await watch.until(watch.all_free)
    return cell.first_line


async def _restart(browser: Browser) -> float:
    """Stop and start the server by the hub's REST API, and run a cell in a new kernel."""
    path = f"users/{browser.user}/server"
    started = time.perf_counter()
    await browser.hub_api("DELETE", path)
    await browser.hub_api("POST", path, {})
    await browser.start_server()
    async with await browser.connect(await browser.start_kernel(NOTEBOOK)) as socket:
        sent = time.perf_counter()
        cell = await run(socket, "print('first line')")
    if cell.first_line is None:
        raise CellError("the cell printed nothing")
    return sent - started + cell.first_line


def _aims(variants: Variants) -> list[Aim]:
    figures = variants.summaries()
    return [
        Aim("cold, p95 seconds", figures[COLD]["p95"], 2.5),
        Aim("started ahead, p95 seconds", figures[AHEAD]["p95"], 1.0),
        Aim(
            "cold beside a restart, times", variants.times_faster(COLD, RESTART), 2.0, at_most=False
        ),
        Aim(
            "started ahead beside a restart, times",
            variants.times_faster(AHEAD, RESTART),
            5.0,
            at_most=False,
        ),
    ]
