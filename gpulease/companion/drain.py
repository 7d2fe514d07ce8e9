"""Emptying a lease: home kernels copy their values back, and the rest is parked.

A drain asks the home kernels, which move the values, waits for their answers within its bound, and
parks what is left when it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from gpulease.protocol.reports import FromSupervisor
from gpulease.protocol.service import Blocker

#: Of the time a drain has, this part (and no more than this many seconds) is kept for parking.
_PARK_SHARE = 0.25
_PARK_MOST = 10.0

Park = Callable[[str, float], Awaitable[dict[str, Any]]]


class Parked(NamedTuple):
    """How many values were parked, and what is lost."""

    number: int
    lost: list[Blocker]
    by_kernel: dict[str, dict[str, Any]]  # how many were parked, and the names that are lost


@dataclass
class Answers:
    """What the home kernels said so far, by kernel."""

    waited_for: set[str]
    blocked: dict[str, list[Blocker]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, kernel_id: str, result: str, blockers: list[Blocker]) -> None:
        """Note one kernel's answer; a later one replaces an earlier one."""
        if result == "done":
            self.done.add(kernel_id)
            self.blocked.pop(kernel_id, None)
        else:
            self.blocked[kernel_id] = blockers
        self.changed.set()

    def forget(self, kernel_id: str) -> None:
        """This kernel has no companion any more: nothing is left to bring home."""
        self.waited_for.discard(kernel_id)
        self.changed.set()

    @property
    def missing(self) -> set[str]:
        """Kernels that have not answered."""
        return self.waited_for - self.done - set(self.blocked)

    @property
    def left(self) -> set[str]:
        """Kernels whose companion still holds something that home has not."""
        return self.waited_for - self.done


class Drain:
    """One drain.

    Args:
        kernels: home kernels that have a companion.
        seconds: how long it may take in all.
        park: whether what cannot go home is parked.
        parker: parks one kernel's values within so many seconds.
    """

    def __init__(self, kernels: Iterable[str], seconds: float, park: bool, parker: Park) -> None:
        self.answers = Answers(set(kernels))
        self._seconds = max(0.0, seconds)
        self._park = park
        self._parker = parker
        self._killed: Parked | None = None
        self.parked: dict[str, dict[str, Any]] = {}  # by kernel, once something was to be parked
        self._over = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether the result is known."""
        return self._over.is_set()

    def killed(self, kernel_id: str, parked: Parked) -> None:
        """A companion was ended because its cell did not; this is what became of its values."""
        before = self._killed or Parked(0, [], {})
        self._killed = Parked(before.number + parked.number, before.lost + parked.lost, {})
        self.answers.forget(kernel_id)

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the result that long; say whether it came."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> FromSupervisor:
        """Wait for the answers, park what is left when told to, and return the result."""
        result = await self._result()
        self._over.set()
        return result

    async def _result(self) -> FromSupervisor:
        kept = min(_PARK_MOST, self._seconds * _PARK_SHARE) if self._park else 0.0
        await self._collect(self._seconds - kept)
        if not self.answers.left and self._killed is None:
            return FromSupervisor(type="drained", result="done", blockers=[])
        if self.answers.left and not self._park:
            return FromSupervisor(type="drained", result="blocked", blockers=self._blockers())
        parked = await park_all(self.answers.left, max(1.0, kept), self._parker)
        self.parked = parked.by_kernel
        before = self._killed or Parked(0, [], {})
        return FromSupervisor(
            type="drained",
            result="parked",
            parked=before.number + parked.number,
            blockers=before.lost + parked.lost,
        )

    async def _collect(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.answers.missing and loop.time() < end:
            self.answers.changed.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self.answers.changed.wait()
            except TimeoutError:
                return

    def _blockers(self) -> list[Blocker]:
        found = [blocker for blockers in self.answers.blocked.values() for blocker in blockers]
        if self.answers.missing:
            sentence = f"The notebook did not bring its values home in {self._seconds:.0f} s."
            found.append(Blocker(name="", reason="home_silent", sentence=sentence, size=None))
        return found


async def park_all(kernels: Iterable[str], seconds: float, parker: Park) -> Parked:
    """Park all at the same time; return how many values were parked and what is lost."""
    names = sorted(kernels)
    results = await asyncio.gather(*(parker(name, seconds) for name in names))
    lost: list[Blocker] = []
    for result in results:
        lost += result["blockers"]
        if not result["done"] and not result["blockers"]:
            sentence = f"Values could not be parked: {result['detail']}."
            lost.append(Blocker(name="", reason="not_parked", sentence=sentence, size=None))
    by_kernel = {
        name: {"parked": result["parked"], "lost": [each["name"] for each in result["blockers"]]}
        for name, result in zip(names, results, strict=True)
    }
    return Parked(sum(result["parked"] for result in results), lost, by_kernel)


def seconds_until(when: str, default: float) -> float:
    """Seconds from now to an ISO time; ``default`` when it says nothing."""
    if not when:
        return default
    return (datetime.fromisoformat(when) - datetime.now(UTC)).total_seconds()


#: How long before its end a lease whose service is silent warns in the notebook.
WARN_BEFORE = timedelta(seconds=60)

Step = Literal["", "warn", "clear", "leave"]


def next_step(hard_end: str, now: datetime, *, silent: bool, warned: bool) -> Step:
    """Return what a lease does at its granted end while the service is silent.

    Silence alone changes nothing: it neither shortens a lease nor lengthens it.

    Args:
        hard_end: ISO time at which the lease ends; "" for never.
        now: with its offset.
        silent: the service is not connected.
        warned: the notebook was warned by this lease itself.
    """
    end = datetime.fromisoformat(hard_end) if hard_end else None
    if silent and end is not None and now >= end:
        return "leave"
    near = end is not None and now >= end - WARN_BEFORE
    if warned:
        # A service that is back says itself what is to be said of the end.
        return "" if near and silent else "clear"
    return "warn" if near and silent else ""
