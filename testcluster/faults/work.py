"""What a student does in a round and what must come of it: every cell right, or loud.

A counter and a list grow by one in a GPU cell and are read at home once the lease has ended.
"""

import asyncio
from dataclasses import dataclass, field

from gpulease.errors import GPULeaseError
from testcluster.site.people import Student
from tests.helpers import WaitedTooLongError, wait_for_async

CELL_SECONDS = 150.0
LOOK_SECONDS = 0.5

SET = "count = {count}; trail = list(range({count}))"
GPU_CELL = "%%gpu --wait 90s\ncount += 1; trail.append(count)\nprint('gpu', count, len(trail))"
READ = "print('home', count, len(trail))"


@dataclass
class Outcome:
    """What was seen of one student's round; `wrong` must stay empty."""

    student: str
    steps: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.student}: {'; '.join(self.steps)}"


async def work(student: Student, count: int, *, may_lose: bool = False) -> Outcome:
    """Set the values at home, change them on the GPU, read them at home afterwards.

    Args:
        student: who does it.
        count: a number that no other round has.
        may_lose: the companion is killed: what was not home yet may be lost, with a word.
    """
    outcome = Outcome(student.browser.user)
    if await _run(student, outcome, SET.format(count=count), "set") is None:
        outcome.wrong.append("a plain cell at home failed")
        return outcome
    shown = await _run(student, outcome, GPU_CELL, "gpu cell")
    if shown is not None and f"gpu {count + 1} {count + 1}" not in shown:
        outcome.wrong.append(f"the GPU cell was wrong without a word: {shown!r}")
    try:
        await wait_for_async(lambda: _has_none(student), CELL_SECONDS, "no lease")
    except WaitedTooLongError:
        outcome.wrong.append(
            f"the lease did not end in {CELL_SECONDS:g} s: {await _leases(student)}"
        )
    read = await _run(student, outcome, READ, "read")
    allowed = {count + 1} if shown is not None else {count, count + 1}
    if read is None and not may_lose:
        outcome.wrong.append(f"a drained variable was lost: {outcome.steps[-1]}")
    if read is not None and not any(f"home {n} {n}" in read for n in allowed):
        outcome.wrong.append(f"read {read!r} at home, where {sorted(allowed)} was right")
    return outcome


async def _has_none(student: Student) -> bool:
    """Whether no lease of the student's lives, as the service says when it is there."""
    await asyncio.sleep(LOOK_SECONDS)  # each look costs service and hub, who are at work
    try:
        found = await student.browser.service_api("GET", "leases?state=live&mine=1")
    except (GPULeaseError, OSError):
        return False  # the service or the hub is away
    return not found["items"]


async def _leases(student: Student) -> str:
    """Return what the service says of the student's leases, and why."""
    try:
        found = await student.browser.service_api("GET", "leases?state=live&mine=1")
    except (GPULeaseError, OSError) as error:
        return f"the service says {error}"
    keys = ("id", "state", "reason", "verdict")
    return "; ".join(" ".join(str(each.get(key)) for key in keys) for each in found["items"])


async def _run(student: Student, outcome: Outcome, code: str, step: str) -> str | None:
    """Run a cell; return what it showed, or None when it failed loudly."""
    done = await student.kernel.execute(code, seconds=CELL_SECONDS)
    if done.status != "ok":
        outcome.steps.append(f"{step} failed: {done.error[:200]}")
        return None
    outcome.steps.append(f"{step} ok in {done.seconds:.1f} s")
    return done.text
