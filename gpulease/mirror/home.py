"""Home's end of the mirror: one pass before and one after a GPU cell.

In a pass both sides look, the other side plans, contents travel, and each side does its steps.  It
may be interrupted anywhere; the next pass begins from what is there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
from gpulease.mirror import words
from gpulease.mirror.batches import PIECE, asks, batches
from gpulease.mirror.entries import Entry, Kind, Left, Manifest, entry, packed
from gpulease.mirror.passes import Job, PassReport
from gpulease.mirror.plan import Conflict, Step
from gpulease.mirror.rules import MirrorLimits, refusal, rules_of
from gpulease.mirror.scan import Scanner, Seen, TooManyError
from gpulease.mirror.tree import MovedOnError, Tree, why
from gpulease.sizes import size_text
from gpulease.wire.connection import Wire
from gpulease.wire.message import Message, Pending

#: Requests on their way at the same time.
_WINDOW = 8
#: How often a pass begins again when something moved meanwhile.
_ROUNDS = 4

#: How often a pass that takes long is looked at, and how long one may take to stop (seconds).
_LOOK_SECONDS = 0.2
_STOP_SECONDS = 10.0

#: Shows a sentence while a pass takes long.
Show = Callable[[str], None]


class HomeEnd:
    """Keeps one directory mirrored.

    Args:
        root: the directory at home.
        endpoint: where the mirror listens.
        keys: of this process; the mirror lets nobody else in.
        total: bytes that the mirror may hold.
        reply_within: seconds until a silent mirror is given up.
    """

    def __init__(
        self,
        root: Path,
        endpoint: Endpoint,
        keys: KeyPair,
        total: int,
        *,
        reply_within: float = 120.0,
    ) -> None:
        self.root = root
        self.bounds = MirrorLimits.of(total)
        self.last = PassReport()
        self._scanner = Scanner(root)
        self._tree = Tree(root, self._scanner)
        self._patience = reply_within
        self._whole = True  # the other side knows nothing of home for certain
        self._lock = threading.Lock()
        self._job = Job()
        self._wire = Wire(lambda _: None)
        self._wire.connect(endpoint, keys)

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def sync(self, show: Show = lambda _: None) -> PassReport:
        """Bring both sides together.

        Raises:
            GPULeaseError: the mirror is gone or failed.
            KeyboardInterrupt: whole files stand on both sides; the next pass goes on.
        """
        job = self._job = Job()
        # On a thread of its own: an interrupt strikes between any two instructions of the main
        # thread, and there it shall strike the waiting alone.
        threading.Thread(
            target=self._run, args=(job,), name="gpulease-mirror-home", daemon=True
        ).start()
        try:
            while not job.done.wait(_LOOK_SECONDS):
                show(job.text)
        except BaseException:
            job.stop.set()
            job.done.wait(_STOP_SECONDS)
            raise
        if job.error is not None:
            raise job.error
        return job.report

    def _run(self, job: Job) -> None:
        with self._lock:
            self._job = job
            begun = time.monotonic()
            report = job.report
            try:
                report.refusal = refusal(self.root)
                for _ in range(_ROUNDS):
                    if report.refusal or not self._round(report, job.show):
                        break
                self.last = report
            except BaseException as error:  # noqa: BLE001 - carried to whoever waits
                job.error = error
            finally:
                self._tree.staging.clear()
                report.seconds = time.monotonic() - begun
                job.done.set()

    def _round(self, report: PassReport, show: Show) -> bool:
        """Do one round; return whether another is needed."""
        whole, self._whole = self._whole, True  # true again wherever this is interrupted
        rules = rules_of(self.root, self.bounds)
        looking = self._wire.request("mirror.look", {"rules": rules.to_json()})
        self._tree.staging.sweep()
        try:
            seen = self._scanner.scan(rules, lambda n: show(f"Looking at files: {n}"))
        except TooManyError:
            report.refusal = words.too_many(self.bounds, where="home")
        except OSError as error:
            report.refusal = f"{self.root} cannot be read: {error.strerror}"
        if self._answer(looking).body["too_many"]:
            report.refusal = report.refusal or words.too_many(self.bounds, where="gpu")
        if report.refusal:
            return False
        said, steps = self._plan(seen, whole=whole)
        report.paths = len(seen.manifest)
        report.total = sum(e.size for e in seen.manifest.values() if e.kind is Kind.FILE)
        report.conflicts += [Conflict(*each) for each in said["conflicts"]]
        report.left = [
            *seen.left,
            *(Left(path, code, size, "gpu") for path, code, size in said["left"]),
        ]
        again = bool(said["again"])
        if said["here"]:
            again |= self._send(said["wants"], seen.manifest, report, show)
        if steps:
            again |= self._receive(steps, seen.manifest, report, show)
        self._whole = False
        return again

    def _plan(self, seen: Seen, *, whole: bool) -> tuple[dict[str, Any], list[Step]]:
        news: dict[str, Entry | None] = {**seen.manifest} if whole else seen.changed
        message = self._answer(self._wire.request("mirror.plan", {"whole": whole}, [packed(news)]))
        found = json.loads(bytes(message.blobs[0]))
        steps = [Step(path, entry(expected), entry(then)) for path, expected, then in found]
        return message.body, steps

    # ---- to the mirror

    def _send(
        self, wants: Sequence[Sequence[str]], manifest: Manifest, report: PassReport, show: Show
    ) -> bool:
        total = sum(manifest[path].size for _, path in wants)
        full: set[str] = set()
        window: deque[Pending] = deque()
        sent = 0
        for pieces, blobs in batches(self._pieces(wants, manifest, full)):
            window.append(self._wire.request("mirror.put", {"pieces": pieces}, blobs))
            sent += sum(len(blob) for blob in blobs)
            if len(window) >= _WINDOW:
                full.update(self._answer(window.popleft()).body["full"])
            show(f"Sending files: {size_text(sent)} of {size_text(total)}")
        for pending in window:
            full.update(self._answer(pending).body["full"])
        report.sent += len(wants) - len(full)
        report.sent_bytes += sent
        failed: dict[str, str] = self._answer(self._wire.request("mirror.apply", {})).body["failed"]
        return _note(failed, full, manifest, report, "home")

    def _pieces(
        self, wants: Sequence[Sequence[str]], manifest: Manifest, full: set[str]
    ) -> Iterator[tuple[list[Any], bytes]]:
        for digest, path in wants:
            size = manifest[path].size
            try:
                with self._tree.reading(path) as descriptor:
                    offset = 0
                    while offset == 0 or offset < size:
                        if digest in full:
                            break
                        piece = os.read(descriptor, PIECE)
                        yield [digest, offset, size], piece
                        offset += max(1, len(piece))
            except (MovedOnError, OSError):
                continue  # it changed meanwhile: the mirror finds it missing, and the next round

    # ---- home

    def _receive(
        self, steps: list[Step], manifest: Manifest, report: PassReport, show: Show
    ) -> bool:
        full = self._fetch(steps, manifest, report, show)
        done: list[Step] = []

        def did(step: Step) -> None:
            done.append(step)
            show(f"Writing files: {len(done)} of {len(steps)}")

        failed = self._tree.apply(steps, did)
        report.written += [step.path for step in done if step.then is not None]
        report.removed += [step.path for step in done if step.then is None]
        body = {
            "done": [step.path for step in done],
            "not_empty": [path for path, reason in failed.items() if reason == "not_empty"],
        }
        self._answer(self._wire.request("mirror.done", body))
        thens = {step.path: step.then for step in steps if step.then is not None}
        return _note(failed, full, thens, report, "gpu")

    def _fetch(
        self, steps: list[Step], manifest: Manifest, report: PassReport, show: Show
    ) -> set[str]:
        """Stage what is to be written at home; return the contents there was no room for."""
        here = {e.mark: path for path, e in manifest.items() if e.kind is Kind.FILE}
        wanted: dict[str, tuple[str, int]] = {}
        full: set[str] = set()
        for step in steps:
            then = step.then
            if then is None or then.kind is not Kind.FILE or then.mark in self._tree.staging:
                continue
            try:
                if then.mark not in here or not self._tree.copy(then.mark, here[then.mark]):
                    wanted[then.mark] = (step.path, then.size)
            except OSError:
                full.add(then.mark)
        total = sum(size for _, size in wanted.values())
        window: deque[tuple[list[list[Any]], Pending]] = deque()
        for pieces, _ in batches(asks(wanted)):
            where = [[wanted[digest][0], offset, length] for digest, offset, length in pieces]
            window.append((pieces, self._wire.request("mirror.get", {"pieces": where})))
            if len(window) >= _WINDOW:
                self._take(*window.popleft(), wanted, full, report)
            show(f"Bringing files home: {size_text(report.received_bytes)} of {size_text(total)}")
        for pieces, pending in window:
            self._take(pieces, pending, wanted, full, report)
        report.received += len(wanted) - len(full)
        return full

    def _take(
        self,
        pieces: list[list[Any]],
        pending: Pending,
        wanted: dict[str, tuple[str, int]],
        full: set[str],
        report: PassReport,
    ) -> None:
        message = self._answer(pending)
        gone = set(message.body["gone"])
        for number, ((digest, offset, _), blob) in enumerate(
            zip(pieces, message.blobs, strict=True)
        ):
            if number in gone or digest in full:
                continue
            try:
                self._tree.staging.take(digest, offset, wanted[digest][1], memoryview(blob))
            except OSError as error:
                if why(error) != "full":
                    raise _unwritable(self.root, error) from None
                full.add(digest)
            report.received_bytes += len(blob)

    def _answer(self, pending: Pending) -> Message:
        end = time.monotonic() + self._patience
        while (message := pending.wait(_LOOK_SECONDS)) is None:
            self._job.show(self._job.text)
            if time.monotonic() < end:
                continue
            self._wire.cancel(pending)
            raise GPULeaseError(
                "mirror_silent",
                f"The mirror on the GPU did not answer within {self._patience:.0f} s.",
                next_step="Run the cell again.",
            )
        return message


def _note(
    failed: dict[str, str],
    full: set[str],
    entries: dict[str, Entry],
    report: PassReport,
    where: str,
) -> bool:
    """Name what could not be written; return whether another round may help."""
    again = False
    for path, said in failed.items():
        found = entries.get(path)
        reason = "full" if found is not None and found.mark in full else said
        if reason in ("moved_on", "not_empty"):
            again = True
        elif found is not None:
            report.left.append(Left(path, reason, found.size, where))
    return again


def _unwritable(root: Path, error: OSError) -> GPULeaseError:
    return GPULeaseError(
        "mirror_unwritable",
        f"Files cannot be written in {root}: {error.strerror}.",
        next_step="Work in a directory that you may write to (%cd).",
    )
