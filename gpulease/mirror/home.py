"""Home's end of the mirror: one pass before and one after a GPU cell.

Owns the order of a pass: both sides look, the other side plans, contents travel, each side does
its steps.  It may be interrupted anywhere; the next pass begins from what stands there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpulease.errors import GPULeaseError
from gpulease.mirror import words
from gpulease.mirror.away import PIECE
from gpulease.mirror.entries import Entry, Kind, Left, Manifest, entry, packed
from gpulease.mirror.plan import Conflict, Step
from gpulease.mirror.rules import Bounds, refusal, rules_of
from gpulease.mirror.scan import Scanner, Seen, TooManyError
from gpulease.mirror.tree import MovedOnError, Tree, why
from gpulease.transfer.api import Endpoint, KeyPair
from gpulease.transfer.message import Message, Pending
from gpulease.transfer.wire import Wire

#: Requests on their way at the same time.
_WINDOW = 8
_FILES_IN_A_MESSAGE = 500
#: How often a pass begins again when something moved meanwhile.
_ROUNDS = 4

#: Shows a sentence while a pass takes long.
Show = Callable[[str], None]


@dataclass
class PassReport:
    """What one pass did.

    Attributes:
        sent, received: files and bytes that travelled.
        written, removed: paths that changed at home.
        conflicts: what both sides had changed.
        left: what is on one side only, and why.
        refusal: why nothing is mirrored at all; "" when it is.
        paths, total: how many paths home has, and bytes of its files.
        seconds: how long it took.
    """

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    refusal: str = ""
    paths: int = 0
    total: int = 0
    seconds: float = 0.0


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
        self.bounds = Bounds.of(total)
        self.last = PassReport()
        self._scanner = Scanner(root)
        self._tree = Tree(root, self._scanner)
        self._patience = reply_within
        self._whole = True  # the other side knows nothing of home for certain
        self._lock = threading.Lock()
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
        with self._lock:
            begun = time.monotonic()
            report = PassReport(refusal=refusal(self.root))
            try:
                for _ in range(_ROUNDS):
                    if report.refusal or not self._round(report, show):
                        break
            finally:
                self._tree.staging.clear()
                report.seconds = time.monotonic() - begun
            self.last = report
            return report

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
        for pieces, blobs in _batches(self._pieces(wants, manifest, full)):
            window.append(self._wire.request("mirror.put", {"pieces": pieces}, blobs))
            sent += sum(len(blob) for blob in blobs)
            if len(window) >= _WINDOW:
                full.update(self._answer(window.popleft()).body["full"])
            show(f"Sending files: {words.size_text(sent)} of {words.size_text(total)}")
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
        failed = self._tree.apply(steps, done.append)
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
        for pieces, _ in _batches(_asks(wanted)):
            asks = [[wanted[digest][0], offset, length] for digest, offset, length in pieces]
            window.append((pieces, self._wire.request("mirror.get", {"pieces": asks})))
            if len(window) >= _WINDOW:
                self._take(*window.popleft(), wanted, full, report)
            show(
                f"Bringing files home: {words.size_text(report.received_bytes)} "
                f"of {words.size_text(total)}"
            )
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
        message = pending.wait(self._patience)
        if message is None:
            self._wire.cancel(pending)
            raise GPULeaseError(
                "mirror_silent",
                f"The mirror beside the GPU did not answer within {self._patience:.0f} s.",
                next_step="Run the cell again.",
                status=504,
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


def _asks(wanted: dict[str, tuple[str, int]]) -> Iterator[tuple[list[Any], bytes]]:
    for digest, (_, size) in wanted.items():
        for offset in range(0, max(1, size), PIECE):
            yield [digest, offset, min(PIECE, size - offset)], b""


def _batches(
    pieces: Iterator[tuple[list[Any], bytes]],
) -> Iterator[tuple[list[list[Any]], list[bytes]]]:
    """Put small pieces together into messages."""
    heads: list[list[Any]] = []
    blobs: list[bytes] = []
    size = 0
    for head, blob in pieces:
        length = len(blob) or int(head[2])
        if heads and (size + length > PIECE or len(heads) >= _FILES_IN_A_MESSAGE):
            yield heads, blobs
            heads, blobs, size = [], [], 0
        heads.append(head)
        blobs.append(blob)
        size += length
    if heads:
        yield heads, blobs


def _unwritable(root: Path, error: OSError) -> GPULeaseError:
    return GPULeaseError(
        "mirror_unwritable",
        f"Files cannot be written in {root}: {error.strerror}.",
        next_step="Work in a directory that you may write to (%cd).",
        status=409,
    )
