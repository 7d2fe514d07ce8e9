"""The nodes of a lease, and what each process on them is told, in torchrun's words.

A node is a part of a lease's GPUs with the address of their machine.  On one machine several nodes
share its address; a node on another machine is reached through the supervisor that it has there.
"""

from __future__ import annotations

import array
import fcntl
import json
import shlex
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from gpulease.channel.keys import KeyPair
from gpulease.companion.config import SupervisorConfig
from gpulease.protocol.names import ENV_LAUNCH_KEYS, ENV_NODES
from gpulease.protocol.supervisor import NodeAddress
from gpulease.system.private_files import make_private


@dataclass(frozen=True)
class Node:
    """One node: ``gpus`` is 0 where their number is not known, ``devices`` None where all count."""

    address: str = "127.0.0.1"
    gpus: int = 0
    devices: str | None = None  # for CUDA_VISIBLE_DEVICES
    supervisor: str = ""  # where it hears what is launched: tcp://host:port; "" is this machine
    server_key: str = ""  # of that one (Z85)


def nodes_of(devices: str | None, count: int, nodes: int) -> list[Node]:
    """Return the nodes of a lease on this machine, in the order of their rank.

    Args:
        devices: of all nodes, with commas between; "" for simulated ones, None for all there are.
        count: how many GPUs the lease has, 0 if that is not known.
        nodes: into so many equal parts they are divided.
    """
    if nodes == 1 or devices is None:
        return [Node(gpus=count, devices=devices)]
    each, names = count // nodes, devices.split(",")
    return [
        Node(gpus=each, devices=",".join(names[rank * each : (rank + 1) * each]))
        for rank in range(nodes)
    ]


def over_machines(
    address: str, count: int, nodes: int, others: Sequence[NodeAddress]
) -> list[Node]:
    """Return the nodes of a lease that has a machine for each, this one first.

    Args:
        address: of this machine.
        count: how many GPUs the lease has.
        nodes: how many nodes.
        others: by rank; none while they are not known.
    """
    each = count // nodes
    found = [Node(address=address, gpus=each)]
    for other in others:
        host = other["address"].removeprefix("tcp://").rpartition(":")[0]
        found.append(Node(host, each, None, other["address"], other["public_key"]))
    return found


def to_text(nodes: Sequence[Node]) -> str:
    """Return nodes as they stand in ``GPULEASE_NODES``."""
    return json.dumps([asdict(node) for node in nodes], separators=(",", ":"))


def from_text(text: str) -> list[Node]:
    """Return what ``to_text`` was given."""
    return [Node(**found) for found in json.loads(text)]


def environments(nodes: Sequence[Node], each: int, port: int) -> Iterator[dict[str, str]]:
    """Yield what each process is told beside its own environment, in the order of the ranks.

    Beside what torchrun tells its workers there are torchrun's own options (``PET_*``), so that
    ``torchrun train.py`` needs none on any node.

    Args:
        nodes: in the order of their rank.
        each: processes on one node.
        port: at which the first one may listen on the first node.
    """
    for place, node in enumerate(nodes):
        for local in range(each):
            yield {
                "MASTER_ADDR": nodes[0].address,
                "MASTER_PORT": str(port),
                "RANK": str(place * each + local),
                "WORLD_SIZE": str(len(nodes) * each),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(each),
                "GROUP_RANK": str(place),
                "GROUP_WORLD_SIZE": str(len(nodes)),
                "NODE_RANK": str(place),
                "NNODES": str(len(nodes)),
                "PET_NNODES": str(len(nodes)),
                "PET_NODE_RANK": str(place),
                "PET_NPROC_PER_NODE": str(node.gpus or "gpu"),
                "PET_MASTER_ADDR": nodes[0].address,
                "PET_MASTER_PORT": str(port),
                **({} if node.devices is None else {"CUDA_VISIBLE_DEVICES": node.devices}),
            }


class LeaseNodes:
    """What a lease's first node knows of all its nodes; one node until it is known whose this is.

    The keys with which it launches on other machines lie in a file that only this user may read, as
    connection files of kernels do: ``gpulease launch`` is the user's process below a companion.
    """

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
            from gpulease.channel.curve import new_keys  # `gpulease --help` loads no zmq

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


_SIOCGIFADDR = 0x8915


class MPI:
    """The files for one MPI launcher (MPICH, Intel MPI, Open MPI), while it runs.

    On the other nodes they start their parts by an agent, as by ``ssh``, which is
    ``gpulease launch --agent``.

    Args:
        nodes: in the order of their rank.
        each: processes on one node.
    """

    def __init__(self, nodes: Sequence[Node], each: int) -> None:
        self._nodes = nodes
        self._each = each
        self._place = Path(tempfile.mkdtemp(prefix="gpulease-mpi-"))

    def __enter__(self) -> dict[str, str]:
        """Write the files; return the variables that name them."""
        slots: dict[str, int] = {}
        for node in self._nodes:
            slots[node.address] = slots.get(node.address, 0) + self._each
        hydra = self._write("hosts", [f"{host}:{number}" for host, number in slots.items()])
        ompi = self._write("hostfile", [f"{host} slots={n}" for host, n in slots.items()])
        command = shlex.join([sys.executable, "-P", "-m", "gpulease", "launch", "--agent", "--"])
        agent = self._write("agent", ["#!/bin/sh", f'exec {command} "$@"'])
        Path(agent).chmod(0o700)
        said = {
            "HYDRA_HOST_FILE": hydra,
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": agent,
            "I_MPI_HYDRA_HOST_FILE": hydra,
            "I_MPI_HYDRA_BOOTSTRAP": "ssh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
            "OMPI_MCA_orte_default_hostfile": ompi,
            "OMPI_MCA_plm_rsh_agent": agent,
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # the agent is here only
            "PRTE_MCA_prte_default_hostfile": ompi,
            "PRTE_MCA_plm_ssh_agent": agent,
            "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        }
        devices = [node.devices for node in self._nodes if node.devices is not None]
        if len(devices) == len(self._nodes):  # all on this machine, and no container says which
            said["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        # A pod's own name is known to nobody else: its parts shall call back by its address.
        interface = interface_of(self._nodes[0].address)
        if interface:
            said |= {"HYDRA_IFACE": interface, "I_MPI_HYDRA_IFACE": interface}
        return said

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove them."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _write(self, name: str, lines: Sequence[str]) -> str:
        path = self._place / name
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        return str(path)


def called(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return host and command of what an agent is called with: ``[-x ...] HOST COMMAND ...``.

    As with ``ssh`` the command is one text for a shell.
    """
    plain = list(words)
    while plain and plain[0].startswith("-"):
        plain.pop(0)
    return (plain[0] if plain else ""), ["/bin/sh", "-c", " ".join(plain[1:])]


def interface_of(address: str) -> str:
    """Return the network interface that has an IPv4 address, "" where none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name.encode()[:15]))
            try:
                fcntl.ioctl(asking, _SIOCGIFADDR, request)
            except OSError:
                continue  # it has none
            if socket.inet_ntoa(request[20:24].tobytes()) == address:
                return name
    return ""
