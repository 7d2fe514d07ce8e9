"""Processes on other nodes of a lease, as ``gpulease launch`` sees its own.

Each node's supervisor has one connection.  A node that does not answer any more ends all that was
launched on it by itself.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpulease.channel.curve import CurveClient
from gpulease.channel.iothread import IOThread
from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.companion.nodes import Node
from gpulease.errors import GPULeaseError
from gpulease.mirror import words
from gpulease.mirror.home import HomeEnd
from gpulease.mirror.passes import PassReport
from gpulease.protocol.control import MirrorView
from gpulease.system.private_files import current_umask

#: Status of a process whose node is gone.
_NODE_LOST = 1


class Stream:
    """What a process on another node shows."""

    def __init__(self, client: CurveClient, job: int, name: str) -> None:
        self._client = client
        self._args = {"job": job, "stream": name}

    async def read(self, _most: int) -> bytes:
        """Return the next piece, of the other side's size; nothing at the end."""
        try:
            text: str = await _answer(self._client, "read", self._args)
        except GPULeaseError:
            return b""  # whoever waits for the process learns why
        return text.encode("latin-1")


class FarProcess:
    """A process on another node."""

    def __init__(self, client: CurveClient, job: int) -> None:
        self._client = client
        self._job = job
        self.stdout = Stream(client, job, "stdout")
        self.stderr = Stream(client, job, "stderr")
        self.returncode: int | None = None

    async def wait(self) -> int:
        """Return its status once it has ended."""
        if self.returncode is None:
            try:
                self.returncode = int(await _answer(self._client, "wait", {"job": self._job}))
            except GPULeaseError:
                self.returncode = _NODE_LOST
        return self.returncode

    async def end(self) -> None:
        """End it with all of its group."""
        with suppress(GPULeaseError):  # its node is gone, and it with it
            await _answer(self._client, "end", {"job": self._job})


class FarNodes:
    """The other nodes of a lease.

    Args:
        keys: those that their supervisors admitted.
    """

    def __init__(self, keys: KeyPair) -> None:
        self._keys = keys
        self._io = IOThread()
        self._clients: dict[str, CurveClient] = {}
        self._launch = secrets.token_hex(8)
        self._files = LaunchFiles(keys, Path.cwd())

    async def prepare(self, nodes: Sequence[Node]) -> None:
        """Have this directory's files on other nodes, where their homes are mirrored.

        Raises:
            GPULeaseError: ``not_mirrored``; ``node_lost`` where one does not answer.
        """
        keys = {"wire_key": self._keys.public}
        args = {"launch": self._launch, "root": str(Path.cwd()), **keys}
        found = [await _answer(self._client(node), "mirror", args) for node in nodes]
        await self._files.send([view for view in found if view is not None])

    async def finish(self) -> None:
        """Take what was written on other nodes, before they are let go."""
        await self._files.bring_back()
        for client in self._clients.values():
            with suppress(GPULeaseError):  # its node is gone
                await _answer(client, "unmirror", {"launch": self._launch})

    async def start(self, node: Node, words: Sequence[str], place: Mapping[str, str]) -> FarProcess:
        """Start a process on a node, in this directory and with this process's environment.

        ``place`` is what it is told beside that.

        Raises:
            GPULeaseError: ``not_launched``; ``node_lost`` where the node does not answer.
        """
        client = self._client(node)
        args = {
            "words": list(words),
            "environment": dict(os.environ),
            "place": dict(place),
            "cwd": str(Path.cwd()),
            "umask": current_umask(),
        }
        return FarProcess(client, int(await _answer(client, "run", args)))

    def close(self) -> None:
        """Let the nodes go; what still runs there ends."""
        for client in self._clients.values():
            client.close()
        self._io.stop()

    def _client(self, node: Node) -> CurveClient:
        return self._clients.get(node.supervisor) or self._connect(node)

    def _connect(self, node: Node) -> CurveClient:
        def gone() -> GPULeaseError:
            return GPULeaseError(
                "node_lost",
                f"The node {node.address} of this lease does not answer.",
                next_step="Run it again. If it fails again, release the GPUs and request new ones.",
            )

        made = self._clients[node.supervisor] = CurveClient(
            self._io,
            Endpoint(node.supervisor, node.server_key),
            self._keys,
            pushed=lambda _: None,
            lost=lambda: None,
            beat=dict,
            gone=gone,
        )
        return made


async def _answer(client: CurveClient, name: str, args: Mapping[str, Any]) -> Any:
    return await asyncio.wrap_future(client.start_call(name, args))


class LaunchFiles:
    """A launch's files on nodes that lack them: there before it begins, back when it has ended.

    Where homes are mirrored, each node has a directory in home's place, and only the first one has
    home's files.  So each launch mirrors the directory that it begins in.

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
