"""The files of a launch on nodes that lack them: there before it begins, back when it has ended.

Where homes are mirrored, each node has a directory in home's place, and only the first one has
home's files.  So each launch mirrors the directory that it begins in.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.errors import GPULeaseError
from gpulease.mirror import words
from gpulease.mirror.home import HomeEnd
from gpulease.mirror.passes import PassReport
from gpulease.protocol.control import MirrorView


class LaunchFiles:
    """The mirrors of one launch's directory, on other nodes of the lease.

    Args:
        keys: those that the other nodes admitted.
        root: the directory, of this node.
    """

    def __init__(self, keys: KeyPair, root: Path) -> None:
        self._keys = keys
        self._root = root
        self._ends: list[HomeEnd] = []

    async def send(self, views: Sequence[MirrorView]) -> None:
        """Bring the nodes that answered so up to date, all at once.

        Raises:
            GPULeaseError: not all of the files would be there.
        """
        for view in views:
            endpoint = Endpoint(view["address"], view["key"])
            self._ends.append(HomeEnd(self._root, endpoint, self._keys, view["limit"]))
        reports = await asyncio.gather(*(asyncio.to_thread(end.sync) for end in self._ends))
        for report in reports:
            if report.refusal:
                raise GPULeaseError(
                    "not_mirrored",
                    f"The files are not on the lease's other nodes: {report.refusal}.",
                    next_step="Launch from a directory of its own.",
                    status=409,
                )

    async def bring_back(self) -> None:
        """Take what was written on the other nodes, one after the other by their rank, and close.

        Of a file that several have written the first node's keeps its name; the others' are kept
        beside it.
        """
        for end in self._ends:
            try:
                _say(await asyncio.to_thread(end.sync), end)
            except GPULeaseError as error:
                _complain(f"files of another node are not here: {error.sentence}")
            end.close()
        self._ends.clear()


def _say(report: PassReport, end: HomeEnd) -> None:
    stays = [left for left in report.left if left.where == "gpu"]
    for line in (
        *words.conflict_lines(report.conflicts),
        *words.left_lines(stays, end.bounds),
    ):
        _complain(line)


def _complain(line: str) -> None:
    sys.stderr.write(f"gpulease launch: {line}\n")
    sys.stderr.flush()
