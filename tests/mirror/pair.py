"""Both ends of a mirror over the real wire, each with a directory of its own."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import zmq

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.mirror.away import AwayEnd, MirrorRoot
from gpulease.mirror.home import HomeEnd
from gpulease.mirror.passes import PassReport
from gpulease.mirror.rules import MirrorLimits


def keys() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


class Pair:
    """A home directory and its mirror."""

    def __init__(self, home: Path, away: Path, total: int = 2**30) -> None:
        self.home, self.away, self.total = home, away, total
        self.root = MirrorRoot(away)
        self._homes: list[HomeEnd] = []
        self._aways: list[AwayEnd] = []
        self.end = self.join()

    def join(self) -> HomeEnd:
        """Connect one more home kernel."""
        endpoint, own = self.listen()
        home = HomeEnd(self.home, endpoint, own, self.total)
        self._homes.append(home)
        return home

    def listen(self) -> tuple[Endpoint, KeyPair]:
        """Make the mirror's end for one more home kernel."""
        own = keys()
        away = AwayEnd(self.root, MirrorLimits.of(self.total))
        self._aways.append(away)
        return away.start(own.public, host="127.0.0.1", port=0), own

    def sync(self) -> PassReport:
        return self.end.sync()

    def close(self) -> None:
        for end in [*self._homes, *self._aways]:
            end.close()


@contextlib.contextmanager
def pair(directory: Path, total: int = 2**30) -> Iterator[Pair]:
    """Make a home and an empty mirror below ``directory``."""
    home, away = directory / "home", directory / "mirror"
    home.mkdir(exist_ok=True)
    away.mkdir(exist_ok=True)
    made = Pair(home, away, total)
    try:
        yield made
    finally:
        made.close()


def tree(root: Path) -> dict[str, object]:
    """Return everything in a directory: contents, link targets (a tuple), None for directories."""
    found: dict[str, object] = {}
    for place, directories, files in os.walk(root):
        for name in [*directories, *files]:
            path = Path(place, name)
            relative = str(path.relative_to(root))
            if path.is_symlink():
                found[relative] = (str(path.readlink()),)
            elif path.is_dir():
                found[relative] = None
            elif path.is_file():
                found[relative] = path.read_bytes()
    return found


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, with the directories that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
