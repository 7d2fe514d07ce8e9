"""What a lease's first node knows of all its nodes, and tells its companions of them.

The keys with which it launches on other machines lie in a file that only this user may read, as
connection files of kernels do: ``gpulease launch`` is a process of the user's below a companion.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gpulease.channel.curve import new_keys
from gpulease.channel.keys import KeyPair
from gpulease.companion.config import SupervisorConfig
from gpulease.companion.nodes import Node, nodes_of, over_machines, to_text
from gpulease.private_files import make_private
from gpulease.protocol.names import ENV_LAUNCH_KEYS, ENV_NODES
from gpulease.protocol.supervisor import NodeAddress


class LeaseNodes:
    """The nodes of one lease; one node until it is known whose this is."""

    def __init__(self) -> None:
        self._nodes = [Node()]
        self._config: SupervisorConfig | None = None
        self._keys: Path | None = None
        #: What the other machines admit, said with hello; nothing where there are none.
        self.hello: dict[str, str] = {}

    @classmethod
    def of(cls, config: SupervisorConfig, directory: Path) -> LeaseNodes:
        """Return those of a lease.

        Args:
            config: the lease.
            directory: private to this process.
        """
        made = cls()
        made._nodes = nodes_of(config.devices, config.count, config.nodes)
        if config.launches:
            made._config, keys = config, new_keys()
            made._keys = directory / "launch-keys.json"
            said = {"public": keys.public, "secret": keys.secret}
            make_private(made._keys, json.dumps(said).encode())
            made.hello = {"launch_key": keys.public}
            made.meet([])
        return made

    @property
    def devices(self) -> str | None:
        """Those of the first node, for ``CUDA_VISIBLE_DEVICES``."""
        return self._nodes[0].devices

    def meet(self, others: Sequence[NodeAddress]) -> None:
        """Learn where the other machines are; companions that are opened from now on do."""
        if self._config is not None:
            config = self._config
            self._nodes = over_machines(config.ip, config.count, config.nodes, others)

    def environment(self) -> dict[str, str]:
        """Return what ``gpulease launch`` reads."""
        keys = {ENV_LAUNCH_KEYS: str(self._keys)} if self._keys is not None else {}
        return {ENV_NODES: to_text(self._nodes), **keys}


def read_keys(path: str) -> KeyPair:
    """Return the keys that a supervisor wrote.

    Raises:
        OSError: the lease is over, and its files with it.
    """
    found = json.loads(Path(path).read_text(encoding="ascii"))
    return KeyPair(found["public"], found["secret"])
