"""The files and variables by which MPI launchers find a lease's nodes: MPICH, Intel MPI, Open MPI.

On the other nodes they start their parts by an agent, as by ``ssh``, which is
``gpulease launch --on``.
"""

from __future__ import annotations

import array
import fcntl
import shlex
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from gpulease.companion.nodes import Node

_SIOCGIFADDR = 0x8915


class MPI:
    """The files for one launcher, while it runs.

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
