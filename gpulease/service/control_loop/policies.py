"""The policy in force, a version in the store or a pinned file; and what another would do.

Another text comes into force without a restart.  A pinned file is looked at every few seconds; a
text of it that is not valid changes nothing and raises an alert.  Every text that was in force is
a version in the store.  ``policy.document`` reads the text.  What another policy would have made
of the last days is asked before it is put into force: one question at a time, within a time limit
and a bound on the days; ``simulate`` replays, in a process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.document import edit
from gpulease.policy.model import Device, PolicyDocument, TimeOuts
from gpulease.service.control_loop.ledger import Ledger
from gpulease.service.schemas.shapes import Finding, PolicyAbout, PolicyView
from gpulease.service.workers import Workers
from gpulease.simulate import history, whatif
from gpulease.simulate.trace import TRACE, devices_to_json
from gpulease.store import PolicyVersion, usage
from gpulease.store.usage import Past

log = logging.getLogger(__name__)

#: Seconds that a what-if may take; what it has not replayed by then is left out.
LIMIT: Final = 60.0
_MODULE: Final = "gpulease.simulate.whatif"

AUTHOR = "gpulease"
#: Seconds between two looks at a pinned file; it counts once two looks found the same in it.
LOOK: Final = 2.0


def about(found: PolicyVersion) -> PolicyAbout:
    """Return a version of the policy without its text, as the API shows it."""
    return {"version": found.version, "author": found.who, "at": found.at.isoformat()}


class Policies:
    """The policy in force.

    Args:
        ledger: reaches the store that keeps the versions.
        changed: called after another policy came into force.
        pinned: a file that the site pinned; saving is refused then.

    Attributes:
        problem: why what stands in the pinned file is not in force, "" where it is.
        current: the document in force; one that offers nothing before ``open``.
        text: the same as it was written.
    """

    def __init__(
        self, ledger: Ledger, changed: Callable[[], None], pinned: Path | None = None
    ) -> None:
        self._ledger = ledger
        self._changed = changed
        self._pinned = pinned
        self._seen: str | None = None
        self._refused: str | None = None  # what stands there and is not valid: nothing to try again
        self._looking = asyncio.Lock()
        self.problem = ""
        self.current = PolicyDocument(0, pools=(), classes=(), default_class="")
        self.text: PolicyVersion

    def view(self, found: PolicyVersion) -> PolicyView:
        """Return a version as the API shows it."""
        return {**about(found), "text": found.text, "pinned": self.pinned}

    @property
    def pinned(self) -> bool:
        """Whether a file holds the policy."""
        return self._pinned is not None

    async def open(
        self,
        devices: Sequence[Device],
        first: Path | None = None,
        time_outs: TimeOuts | None = None,
    ) -> None:
        """Take the pinned file, else the newest version, else make the first one.

        Args:
            devices: what the first document offers where no text is given for it.
            first: a file with the first version's text.
            time_outs: those of a first document made from the devices.

        Of a pinned file that cannot be used, the version before it stays in force, if there is one.

        Raises:
            GPULeaseError: ``bad_policy`` when the text in force is not valid, ``bad_option`` when a
                pinned file cannot be read and no version is there.
            OSError: the file with the first version cannot be read.
        """
        found = await self._ledger.call(self._ledger.store.policy)
        if self._pinned is not None:
            if found is not None:
                self._take(found)
                await self._try_pinned(await self._read_pinned())
            else:
                await self._put(await self._first_pinned(), self._pinned.name)
            return
        if found is None:
            await self._put(await asyncio.to_thread(_first, first, devices, time_outs), AUTHOR)
        else:
            self._take(found)

    async def watch(self) -> None:
        """Follow the pinned file until cancelled."""
        while self._pinned is not None:
            await asyncio.sleep(LOOK)
            await self.look()

    async def look(self) -> None:
        """Put what stands in the pinned file into force, if it stood there at the last look, too.

        So a file that is being written is not taken by halves.
        """
        async with self._looking:
            text = await self._read_pinned()
            if text == self._seen:
                await self._try_pinned(text)
            self._seen = text

    def check(self, text: str) -> list[Finding]:
        """Return what is wrong with a text, by line."""
        return [
            cast("Finding", {**asdict(found), "sentence": found.message})
            for found in document.check(text)
        ]

    def parsed(self, text: str) -> PolicyDocument:
        """Return the document that a valid text would become.

        Raises:
            GPULeaseError: ``bad_policy``.
        """
        return document.parse(text, self.text.version + 1)

    async def save(self, text: str, author: str, base_version: int | None) -> PolicyVersion:
        """Put a text into force as a new version; it counts at once.

        Raises:
            GPULeaseError: ``policy_pinned``, ``policy_changed`` (409), ``bad_policy`` (422).
        """
        if self._pinned is not None:
            raise GPULeaseError(
                "policy_pinned",
                "The policy of this site is pinned to a file.",
                next_step="Change it there: it counts a few seconds later.",
            )
        if base_version is not None and base_version != self.text.version:
            raise GPULeaseError(
                "policy_changed",
                f"Version {self.text.version} came into force meanwhile.",
                next_step="Load it, make your change again and save.",
                numbers={"version": self.text.version, "base_version": base_version},
            )
        self.refuse_bad(text)
        await self._put(text, author, self.text.version)
        self._changed()
        return self.text

    async def versions(self, offset: int, limit: int) -> tuple[list[PolicyAbout], int]:
        """Return versions without their texts, newest first, and how many there are."""
        newest = self.text.version
        before = newest + 1 - offset
        rows = await self._ledger.call(self._ledger.store.policy_versions, before, limit)
        kept = await self._ledger.call(self._ledger.store.policies_kept)
        return [about(row) for row in rows], kept

    async def version(self, number: int) -> PolicyVersion:
        """Return one version.

        Raises:
            GPULeaseError: ``no_such_version`` (404).
        """
        if number == self.text.version:
            return self.text
        found = await self._ledger.call(self._ledger.store.policy, number)
        if found is None:
            raise GPULeaseError(
                "no_such_version",
                f"There is no version {number} of the policy, or it is no longer kept.",
                numbers={"newest": self.text.version},
            )
        return found

    def refuse_bad(self, text: str) -> None:
        """Refuse a text that is not valid.

        Raises:
            GPULeaseError: ``bad_policy`` (422) with the findings.
        """
        try:
            document.parse(text, self.text.version + 1)
        except GPULeaseError as error:
            error.numbers["findings"] = self.check(text)
            raise

    async def _first_pinned(self) -> str:
        """Return the pinned file's text where no version before it could stay in force."""
        assert self._pinned is not None
        try:
            return await asyncio.to_thread(self._pinned.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GPULeaseError(
                "bad_option",
                f"policy_file is {str(self._pinned)!r}, which cannot be read: "
                f"{_unreadable(error)}. No version of the policy is there to go on with.",
                next_step="Give the path of a file that is there.",
                numbers={"option": "policy_file"},
            ) from error

    async def _read_pinned(self) -> str | None:
        """Return what stands in the pinned file; ``None`` with a problem where that cannot be."""
        assert self._pinned is not None
        try:
            return await asyncio.to_thread(self._pinned.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._complain(f"It cannot be read: {_unreadable(error)}.")
            self._refused = None
            return None

    async def _try_pinned(self, text: str | None) -> None:
        assert self._pinned is not None
        if text is None or text == self._refused:
            return
        self._refused = None
        try:
            if text != self.text.text:
                await self._put(text, self._pinned.name)
                self._changed()
        except GPULeaseError as error:
            if error.reason == "bad_policy":
                self._refused = text  # what the store refuses is tried again
            self._complain(error.sentence)
            return
        self._complain("")

    def _complain(self, why: str) -> None:
        """Say once why the pinned file is not in force, or that it is again."""
        assert self._pinned is not None
        problem = ""
        if why:
            kept = f"Version {self.text.version} of the policy stays in force"
            problem = f"{kept}: {self._pinned.name} is not used. {why}"
        if problem != self.problem:
            log.log(
                logging.ERROR if problem else logging.INFO,
                "%s",
                problem or f"{self._pinned.name} is in force",
                extra={"reason": "policy_file"},
            )
        self.problem = problem

    async def _put(self, text: str, author: str, expected: int | None = None) -> None:
        """Save a valid text as the newest version, and take it."""
        document.parse(text)
        store = self._ledger.store
        now = datetime.now(UTC)
        await self._ledger.call(store.save_policy, text, author, now, expected=expected)
        saved = await self._ledger.call(store.policy)
        assert saved is not None, "a version was just saved"
        self._take(saved)

    def _take(self, found: PolicyVersion) -> None:
        self.current = document.parse(found.text, found.version)
        self.text = found


def _first(first: Path | None, devices: Sequence[Device], time_outs: TimeOuts | None) -> str:
    if first is not None:
        return first.read_text(encoding="utf-8")
    return document.dump(document.default_document(devices, time_outs))


def _unreadable(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


@dataclass(eq=False)
class WhatIf:
    """Answers one question at a time.

    Args:
        ledger: reaches the store.
        policies: the policy in force.
        devices: what is there now.
        workers: where it is replayed.
        limit: seconds that one answer may take.
    """

    ledger: Ledger
    policies: Policies
    devices: Callable[[], tuple[Device, ...]]
    workers: Workers
    limit: float = LIMIT

    def __post_init__(self) -> None:
        self._one = asyncio.Lock()

    async def ask(self, text: str, days: float, now: datetime) -> dict[str, Any]:
        """Return what a text would have made of the last days.

        Raises:
            GPULeaseError: ``bad_policy`` (422), ``no_history`` (409), ``whatif_busy`` (429),
                ``whatif_too_long`` (422).
        """
        self.policies.refuse_bad(text)
        if self._one.locked():
            raise GPULeaseError(
                "whatif_busy",
                "Another what-if is running.",
                next_step=f"Ask again in a minute: one takes {self.limit:g} s at most.",
            )
        async with self._one:
            return await self._answer(text, days, now)

    async def _answer(self, text: str, days: float, now: datetime) -> dict[str, Any]:
        since = now - timedelta(days=days)
        past: Past = await self.ledger.read(usage.past, since, now)
        idle = self.policies.current.time_outs.idle
        question = await self.workers.thread("", self._question, past, text, since, now)
        if not question["trace"]["sessions"] or not question["devices"]:
            raise GPULeaseError(
                "no_history",
                "Nobody had a GPU in this time: there is nothing to replay.",
                next_step="Try again when GPUs were used, or `gpulease simulate` a scenario.",
                numbers={"days": days, "requests": question["requests"]},
            )
        began = asyncio.get_running_loop().time()
        replays = await self.workers.process("", _MODULE, question, limit=self.limit)
        found = whatif.answer(replays)
        if found is None:
            raise GPULeaseError(
                "whatif_too_long",
                f"Replaying these {days:g} days takes longer than {self.limit:g} s.",
                next_step="Ask for fewer days.",
                numbers={"days": days, "limit": self.limit, "requests": question["requests"]},
            )
        new = document.parse(text, self.policies.text.version + 1)
        return {
            "since": since.isoformat(),
            "until": now.isoformat(),
            "days": days,
            "policy_version": self.policies.text.version,
            "requests": question["requests"],
            "left_out": question["left_out"],
            "cut": past.cut,
            "changes": edit.differences(self.policies.current, new),
            "seconds": round(asyncio.get_running_loop().time() - began, 2),
            "idle": idle,
            "curve": whatif.curve(replays, idle),
            **found,
        }

    def _question(self, past: Past, text: str, since: datetime, now: datetime) -> dict[str, Any]:
        made = history.recorded(past.leases, past.verdicts, since, now, past.reservations)
        return {
            whatif.NOW: document.dump(self.policies.current),
            whatif.THEN: text,
            "devices": devices_to_json(self.devices()),
            "trace": TRACE.dump_python(made.trace, mode="json"),
            "requests": made.requests,
            "left_out": made.left_out,
        }
