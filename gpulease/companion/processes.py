"""Starting companion processes and binding a kernel manager to one.

Owns the process of a companion: started ahead or on demand, spoken to over its private line,
bound to a ``KernelManager`` through a provisioner.  Knows nothing of desks or leases.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_client import localinterfaces
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from gpulease.companion.link import Link
from gpulease.errors import GPULeaseError

#: Importing ipykernel takes half a second; a machine under load may need much longer.
START_SECONDS = 60.0


#: Five Jupyter channels and the transfer's wire.
PORTS_OF_A_KERNEL = 6
_MODULE = "gpulease.companion.kernel"


class CompanionProcess:
    """A process of ``gpulease.companion.kernel``, prepared or running."""

    def __init__(
        self, process: subprocess.Popen[bytes], link: Link, executable: str, hash_seed: str
    ) -> None:
        self.process = process
        self.link = link
        self.executable = executable
        self.hash_seed = hash_seed
        self.python = ""
        self._started_with: tuple[Mapping[str, str], Path] = ({}, Path())

    @classmethod
    async def start(
        cls, executable: str, environ: Mapping[str, str], directory: Path
    ) -> CompanionProcess:
        """Start a process that imports ipykernel and then waits; returns before it has."""
        mine, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - fork and exec take a millisecond
                [executable, "-P", "-m", _MODULE, "--link", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=dict(environ),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            mine.close()
            raise GPULeaseError(
                "companion_failed", f"The companion could not be started: {error}.", status=500
            ) from error
        finally:
            theirs.close()
        link = await Link.over(mine)
        made = cls(process, link, executable, environ.get("PYTHONHASHSEED", ""))
        made._started_with = (environ, directory)
        return made

    def fits(self, executable: str, hash_seed: str) -> bool:
        """Tell whether this process can become the companion of such a home kernel."""
        same = same_interpreter(self.executable, executable) and self.hash_seed == hash_seed
        return same and self.process.poll() is None

    async def prepared(self) -> str:
        """Wait until it has imported all it needs; return its Python version."""
        if not self.python:
            said = await self._next("prepared")
            self.python = said["python"]
        return self.python

    async def begin(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Make it a kernel; return what it said when it was ready."""
        self.link.send({"type": "start", **order})
        return await self._next("ready")

    async def _next(self, wanted: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await self.link.receive()
        except TimeoutError:
            said = {"type": "failed", "detail": f"no answer in {START_SECONDS:g} s"}
        if said is not None and said["type"] == wanted:
            return said
        if said is None and wanted == "prepared":
            raise await _why_not(self.executable, *self._started_with)
        detail = said.get("detail", "") if said else "its process ended"
        raise GPULeaseError(
            "companion_failed", f"The companion could not start: {detail}.", status=500
        )


async def _why_not(executable: str, environ: Mapping[str, str], directory: Path) -> GPULeaseError:
    """Find out why a process ended before it was prepared: its import is tried once more."""
    trial = await asyncio.create_subprocess_exec(
        *(executable, "-P", "-c", f"import {_MODULE}"),
        env=dict(environ),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            _, said = await trial.communicate()
    except TimeoutError:
        trial.kill()
        await trial.wait()
        said = b"the import did not end"
    lines = said.decode(errors="replace").strip().splitlines()
    cause = lines[-1].strip() if lines else "its process ended"
    if "No module named 'gpulease" in cause:
        return GPULeaseError(
            "gpulease_missing",
            f"gpulease is not installed for {executable}.",
            next_step="Install gpulease in this environment.",
            status=409,
        )
    return GPULeaseError(
        "companion_failed",
        f"The companion cannot start with {executable}: {cause[:300]}.",
        next_step="Repair this environment: `python -m gpulease.companion.kernel --help` there "
        "shows the whole error.",
        status=500,
    )


def same_interpreter(one: str, other: str) -> bool:
    """Tell whether two paths are one environment's Python (``python`` and ``python3``).

    The directory counts too: every virtual environment links to the same file.
    """
    first, second = Path(one), Path(other)
    return first.parent == second.parent and first.resolve() == second.resolve()


class CompanionProvisioner(LocalProvisioner):
    """Binds a kernel manager to a process that lives already."""

    bound: CompanionProcess
    order: dict[str, Any]
    ready: dict[str, Any]

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:  # noqa: ARG002
        """Have the process read the manager's connection file; return the ports it bound."""
        assert self.parent is not None
        self.process = self.bound.process
        self.pid = self.bound.process.pid
        self.pgid = os.getpgid(self.bound.process.pid)
        connection_file = self.parent.connection_file
        self.ready = await self.bound.begin({**self.order, "connection_file": connection_file})
        self.connection_info.update(self.ready["ports"])
        return self.connection_info


class _Specs(KernelSpecManager):
    """Offers the one kernel there is; nothing is installed anywhere."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=[kernel_name], language="python", metadata={"supported_encryption": "curve"}
        )


async def start_manager(
    bound: CompanionProcess,
    order: Mapping[str, Any],
    directory: Path,
    ip: str,
    ports: Sequence[int],
) -> tuple[AsyncKernelManager, dict[str, Any]]:
    """Return a manager of ``bound``, its channels encrypted, and what the kernel said.

    ``ports``: ``PORTS_OF_A_KERNEL`` of them; 0 lets the system choose.
    """
    *channels, wire_port = ports
    _is_ours(ip)
    specs = _Specs()
    manager = AsyncKernelManager(
        kernel_name="gpulease-companion",
        kernel_spec_manager=specs,
        connection_file=str(directory / f"kernel-{secrets.token_hex(8)}.json"),
        ip=ip,
        transport_encryption="required",
        cache_ports=False,
    )
    for name, port in zip(("shell", "iopub", "stdin", "control", "hb"), channels, strict=True):
        setattr(manager, f"{name}_port", port)
    provisioner = CompanionProvisioner(
        kernel_id=order["kernel_id"], kernel_spec=manager.kernel_spec, parent=manager
    )
    provisioner.bound = bound
    provisioner.order = {**order, "ip": ip, "wire_port": wire_port}
    manager.provisioner = provisioner
    await manager.start_kernel(env={})
    return manager, provisioner.ready


def _is_ours(ip: str) -> None:
    """Let jupyter_client know an address of this machine that it may not find by itself.

    It looks with tools that an image need not have; the desk is bound to ``ip``, which proves it.
    """
    if not localinterfaces.is_local_ip(ip):
        localinterfaces.LOCAL_IPS.append(ip)
