"""`reclaim`: from the decision to take a lease to its device being free.

The last cell changed 100 MB, and the drain has all of it still to bring.  Both ends are live events
as a page sees them: the lease begins to drain, and the class has its device free again.
"""

from __future__ import annotations

from typing import Any

from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.stack import Watch, hub, notebook, person, run
from gpulease.demo.browse import Browser
from gpulease.demo.kernel_socket import KernelSocket

FILL = "import numpy as np\nbig = [np.zeros(1_250_000) for _ in range(10)]  # 100 MB"
CHANGE = "%%gpu\nfor part in big:\n    part += 1"
CHANGED = "100 MB changed"


async def measure(*, rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Run the benchmark and return its report."""
    variants = Variants()
    with hub(1) as options:
        async with (
            person(options, "admin") as admin,
            Watch.of(admin) as watch,
            notebook(options, "student") as (_, socket),
        ):
            progress("reclaim: 100 MB changed by the last GPU cell")
            await run(socket, FILL)
            for number in range(1, rounds + 1):
                await _round(admin, watch, socket, variants, number)
    worst = variants.summaries()[CHANGED]["p95"]
    return report(
        "reclaim",
        variants,
        [Aim("decision to device free, p95 seconds", round(worst, 3), 2.0)],
        changed_bytes=100_000_000,
    )


async def _round(
    admin: Browser, watch: Watch, socket: KernelSocket, variants: Variants, number: int
) -> None:
    lease = await changed(socket, watch)
    await admin.service_api("DELETE", f"leases/{lease}", {"note": "measured"})
    decided = await watch.until(watch.draining)
    free = await watch.until(watch.all_free)
    variants.add(CHANGED, free - decided)
    await run(socket, check(number))


async def changed(socket: KernelSocket, watch: Watch) -> str:
    """Change 100 MB by a GPU cell; return the lease."""
    watch.forget_ended()
    await run(socket, CHANGE)
    return next(i for i, each in watch.leases.items() if each["state"] == "active")


def check(number: int) -> str:
    """Return a cell that fails unless every value is home as the last of so many rounds left it."""
    return f"assert all((part == {number}).all() for part in big), big[0]"
