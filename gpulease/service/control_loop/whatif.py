"""What another policy would have made of the last days, before it is put into force.

One question at a time, within a time limit and a bound on the days.  ``simulate`` replays, in a
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.document import edit
from gpulease.policy.model import Device
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.control_loop.policies import Policies
from gpulease.service.workers import Workers
from gpulease.simulate import codec, history, whatif
from gpulease.store.used import Past

#: Seconds after which what has not been replayed is left out.
LIMIT: Final = 60.0
_MODULE: Final = "gpulease.simulate.whatif"


class WhatIf:
    """Answers one question at a time.

    Args:
        ledger: reaches the store.
        policies: the policy in force.
        devices: what is there now.
        workers: where it is replayed.
        limit: seconds that one answer may take.
    """

    def __init__(
        self,
        ledger: Ledger,
        policies: Policies,
        devices: Callable[[], tuple[Device, ...]],
        workers: Workers,
        limit: float = LIMIT,
    ) -> None:
        self._workers = workers
        self._ledger = ledger
        self._policies = policies
        self._devices = devices
        self._limit = limit
        self._one = asyncio.Lock()

    async def ask(self, text: str, days: float, now: datetime) -> dict[str, Any]:
        """Return what a text would have made of the last days.

        Raises:
            GPULeaseError: ``bad_policy`` (422), ``no_history`` (409), ``whatif_busy`` (429),
                ``whatif_too_long`` (422).
        """
        self._policies.refuse_bad(text)
        if self._one.locked():
            raise GPULeaseError(
                "whatif_busy",
                "Another what-if is being worked out.",
                next_step=f"Ask again in a minute: one takes {self._limit:g} s at most.",
                status=429,
            )
        async with self._one:
            return await self._answer(text, days, now)

    async def _answer(self, text: str, days: float, now: datetime) -> dict[str, Any]:
        since = now - timedelta(days=days)
        past: Past = await self._ledger.call(self._ledger.store.past, since, now)
        question = await self._workers.thread("", self._question, past, text, since, now)
        if not question["trace"]["sessions"] or not question["devices"]:
            raise GPULeaseError(
                "no_history",
                "Nobody had a GPU in this time: there is nothing to replay.",
                next_step="Try again when GPUs were used, or `gpulease simulate` a scenario.",
                numbers={"days": days, "requests": question["requests"]},
                status=409,
            )
        began = asyncio.get_running_loop().time()
        replays = await self._workers.process("", _MODULE, question, limit=self._limit)
        found = whatif.answer(replays)
        if found is None:
            raise GPULeaseError(
                "whatif_too_long",
                f"Replaying these {days:g} days takes longer than {self._limit:g} s.",
                next_step="Ask for fewer days.",
                numbers={"days": days, "limit": self._limit, "requests": question["requests"]},
                status=422,
            )
        new = document.parse(text, self._policies.text.version + 1)
        return {
            "since": since.isoformat(),
            "until": now.isoformat(),
            "days": days,
            "policy_version": self._policies.text.version,
            "requests": question["requests"],
            "left_out": question["left_out"],
            "cut": past.cut,
            "changes": edit.differences(self._policies.current, new),
            "seconds": round(asyncio.get_running_loop().time() - began, 2),
            **found,
        }

    def _question(self, past: Past, text: str, since: datetime, now: datetime) -> dict[str, Any]:
        made = history.recorded(past.leases, past.verdicts, since, now, past.reservations)
        return {
            whatif.NOW: document.dump(self._policies.current),
            whatif.THEN: text,
            "devices": codec.devices_to_json(self._devices()),
            "trace": codec.trace_to_json(made.trace),
            "requests": made.requests,
            "left_out": made.left_out,
        }
