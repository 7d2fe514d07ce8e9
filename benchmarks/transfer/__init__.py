"""`transfer`: what large values cost between a notebook and its companion on this machine.

One GiB of each kind both ways, in pairs with a bare socket; the same against ipyparallel and dask;
what small changes in large values move; how soon a cell starts while much is on its way home; and
the memory that it takes.  What empty cells cost stands in `cell`.  ``scale`` is a share of the GiB.
"""

from __future__ import annotations

from typing import Any

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.transfer import changes, rivals, whole

GIB = 2**30


async def measure(*, rounds: int, scale: float) -> dict[str, Any]:
    """Run the benchmark and return its report."""
    variants = Variants()
    size = max(2**20, round(GIB * scale)) // 2**20 * 2**20
    kinds = whole.kinds()
    async with OwnKernel.start() as kernel:
        progress("transfer: a notebook beside a companion on this machine")
        await run(kernel, "%load_ext gpulease")
        await run(kernel, "%gpu connect local")
        await run(kernel, whole.START.format(size=size))
        ratios, memory = await whole.measure(kernel, variants, kinds, rounds=rounds, size=size)
        found = await changes.measure(kernel, variants, rounds=rounds, size=size, scale=scale)
        faster = await rivals.measure(kernel, variants, rounds=rounds, size=size)
    async with OwnKernel.start() as kernel:
        progress("transfer: the same as between two machines")
        await run(kernel, whole.FAR)
        await run(kernel, "%load_ext gpulease")
        await run(kernel, "%gpu connect local")
        await run(kernel, whole.START.format(size=size))
        far = {f"{kind}, far": cell for kind, cell in kinds.items()}
        sealed, beyond = await whole.measure(kernel, variants, far, rounds=rounds, size=size)
    memory |= beyond
    aims = [
        *(
            Aim(f"{name}, share of a bare socket", ratio, whole.sealed_share(), at_most=False)
            for name, ratio in sealed.items()
        ),
        *(
            Aim(f"{name}, share of a bare socket", ratio, whole.SHARE, at_most=False)
            for name, ratio in ratios.items()
        ),
        *(
            Aim(f"{name}, MiB beyond value and staging copy", extra, 64.0)
            for name, extra in memory.items()
        ),
        *found,
        *(Aim(f"{name}, times as fast", times, 3.0, at_most=False) for name, times in faster),
    ]
    return report("transfer", variants, aims, bytes=size, kinds=list(kinds))
