"""The mirror's end on the GPU: looks, plans, takes contents in and hands its own out.

What both sides last agreed on is kept here and lives as long as the mirror.  Home asks; each
request is answered on a thread of this end's own.  Several home kernels may work in one directory.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpulease.channel.keys import Endpoint
from gpulease.errors import GPULeaseError
from gpulease.mirror.batches import PIECE
from gpulease.mirror.entries import Entry, Kind, Left, Manifest, below, row, unpacked
from gpulease.mirror.plan import Plan, Step, plan
from gpulease.mirror.rules import MirrorLimits, Rules
from gpulease.mirror.scan import Scanner, TooManyError
from gpulease.mirror.tree import MovedOnError, Tree, why
from gpulease.wire.connection import Wire
from gpulease.wire.message import Message

log = logging.getLogger(__name__)


class MirrorRoot:
    """One mirrored directory; shared by the home kernels that work in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scanner = Scanner(path, "gpu")
        self.manifest: Manifest = {}
        self.base: dict[str, Entry] = {}
        self.lock = threading.Lock()
        self.version = 0  # grows with whatever a plan reads

    def settle(self, path: str, entry: Entry | None) -> None:
        """Both sides hold ``entry`` at ``path`` now."""
        self.version += 1
        if entry is None:
            self.base.pop(path, None)
        else:
            self.base[path] = entry

    def forget(self, path: str) -> None:
        """Nothing is agreed on about ``path`` and what lies below it."""
        self.version += 1
        for known in [known for known in self.base if known == path or below(known, path)]:
            del self.base[known]


class AwayEnd:
    """One home kernel's access to a mirrored directory.

    Args:
        root: the directory.
        bounds: the most that it may hold.
    """

    def __init__(self, root: MirrorRoot, bounds: MirrorLimits) -> None:
        self._root = root
        self._bounds = bounds
        self._tree = Tree(root.path, root.scanner)
        self._told: Manifest = {}  # what home has
        self._plan = Plan()
        self._rested = -1  # the root's version when nothing was left to do
        self._left: list[Left] = []
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._wire = Wire(self._requests.put)
        self._worker = threading.Thread(target=self._work, name="gpulease-mirror", daemon=True)
        self._answers: dict[str, Callable[[Message], tuple[dict[str, Any], list[Any]]]] = {
            "mirror.look": self._look,
            "mirror.plan": self._make_plan,
            "mirror.put": self._put,
            "mirror.apply": self._apply,
            "mirror.get": self._get,
            "mirror.done": self._done,
        }

    def start(self, client_key: str, *, host: str, port: int) -> Endpoint:
        """Listen for the home kernel that proves ``client_key``; port 0 lets the system choose."""
        endpoint = self._wire.listen(client_key, host, port)
        self._worker.start()
        return endpoint

    def close(self) -> None:
        """Answer no more; what is staged is removed."""
        self._wire.close()
        self._requests.put(None)
        self._worker.join(5)
        self._tree.staging.clear()

    def _work(self) -> None:
        while (message := self._requests.get()) is not None:
            answer = self._answers.get(message.kind)
            if answer is None:
                continue
            try:
                body, blobs = answer(message)
            except GPULeaseError as error:
                self._wire.refuse(message, error)
            except Exception as error:
                log.exception("a request of the mirror failed")
                self._wire.refuse(message, _failed(error))
            else:
                self._wire.reply(message, body, blobs)

    def _look(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Walk the mirror while home walks its own directory."""
        rules = Rules.from_json(message.body["rules"], self._bounds)
        root = self._root
        with root.lock:
            self._tree.staging.sweep()
            try:
                seen = root.scanner.scan(rules)
            except TooManyError:
                return {"too_many": True}, []
            if seen.changed:
                root.version += 1
            root.manifest, self._left = seen.manifest, seen.left
        return {"too_many": False}, []

    def _make_plan(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Take what changed at home, and say what home shall do and send."""
        if message.body["whole"]:
            self._told = {}
            self._rested = -1
        news = unpacked(message.blobs[0])
        for path, entry in news.items():
            _put(self._told, path, entry)
        root = self._root
        with root.lock:
            if not news and self._rested == root.version:
                return self._said(Plan()), [b"[]"]
            made = self._plan = plan(root.base, self._told, root.manifest)
            for path, entry in made.agreed.items():
                root.settle(path, entry)
            for path, name in made.aside.items():
                if self._tree.aside(path, name, root.manifest[path]):
                    root.forget(path)
            if made.aside:  # what stands where is another question now
                made.home.clear()
                made.away.clear()
            elif made.idle:
                self._rested = root.version
            steps = [[step.path, row(step.expected), row(step.then)] for step in made.home]
            return self._said(made), [json.dumps(steps).encode()]

    def _said(self, made: Plan) -> dict[str, Any]:
        present = {e.mark for e in self._root.manifest.values() if e.kind is Kind.FILE}
        wants = {
            step.then.mark: step.path
            for step in made.away
            if step.then is not None
            and step.then.kind is Kind.FILE
            and step.then.mark not in present
        }
        return {
            "again": bool(made.aside),
            "wants": [[digest, path] for digest, path in wants.items()],
            "here": len(made.away),
            "conflicts": [[each.path, each.kept_as, each.deleted] for each in made.conflicts],
            "left": [[each.path, each.why, each.size] for each in self._left],
        }

    def _put(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Take pieces of contents in."""
        full: list[str] = []
        for (digest, offset, size), piece in zip(
            message.body["pieces"], message.blobs, strict=True
        ):
            try:
                self._tree.staging.take(digest, offset, size, memoryview(piece))
            except OSError as error:
                log.warning("the mirror cannot take a content: %s", error)
                full.append(digest)
        return {"full": full}, []

    def _apply(self, message: Message) -> tuple[dict[str, Any], list[Any]]:  # noqa: ARG002
        """Bring the mirror up to date."""
        root, steps = self._root, self._plan.away
        with root.lock:
            lost = self._copy_present(steps)
            failed = self._tree.apply(steps, lambda step: root.settle(step.path, step.then))
            for path, reason in failed.items():
                if reason == "not_empty":  # what is passed over holds it: both sides have it then
                    root.forget(path)
                elif reason == "moved_on" and path in lost:
                    failed[path] = lost[path]
            self._tree.staging.clear()
        self._plan.away = []
        return {"failed": failed}, []

    def _copy_present(self, steps: list[Step]) -> dict[str, str]:
        """Stage contents that stand here under another name; a rename sends nothing."""
        where = {e.mark: p for p, e in self._root.manifest.items() if e.kind is Kind.FILE}
        lost: dict[str, str] = {}
        for step in steps:
            then = step.then
            if then is None or then.kind is not Kind.FILE or then.mark in self._tree.staging:
                continue
            try:
                if then.mark in where:
                    self._tree.copy(then.mark, where[then.mark])
            except OSError as error:
                lost[step.path] = why(error)
        return lost

    def _get(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Hand pieces of contents out; what is not as it was seen is gone."""
        gone: list[int] = []
        blobs: list[bytes] = []
        for number, (path, offset, length) in enumerate(message.body["pieces"]):
            try:
                with self._tree.reading(path) as descriptor:
                    blobs.append(os.pread(descriptor, min(int(length), PIECE), int(offset)))
            except (MovedOnError, OSError):
                gone.append(number)
                blobs.append(b"")
        return {"gone": gone}, blobs

    def _done(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Home did what was planned, as far as it says."""
        steps = {step.path: step for step in self._plan.home}
        with self._root.lock:
            for path in message.body["done"]:
                step = steps[path]
                self._root.settle(path, step.then)
                _put(self._told, path, step.then)
            for path in message.body["not_empty"]:
                self._root.forget(path)
        self._plan.home = []
        return {}, []


def _put(manifest: Manifest, path: str, entry: Entry | None) -> None:
    if entry is None:
        manifest.pop(path, None)
    else:
        manifest[path] = entry


def _failed(error: Exception) -> GPULeaseError:
    return GPULeaseError(
        "mirror_failed",
        f"The mirror on the GPU failed: {type(error).__name__}.",
        next_step="Run the cell again; if it stays, tell your admin.",
    )
