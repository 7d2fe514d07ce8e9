"""Binding a kernel manager to a companion's process.

Only this module loads ``jupyter_client``, whose import takes half as long as a supervisor's others
together: it is imported while the companion's own imports are waited for.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_client import localinterfaces
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from gpulease.companion.processes import CompanionProcess


class CompanionProvisioner(LocalProvisioner):
    """Binds a kernel manager to a process that lives already."""

    bound: CompanionProcess
    order: dict[str, Any]
    ready: dict[str, Any]

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:  # noqa: ARG002
        """Have the process read the manager's connection file; return the ports it bound.

        Ports that the system is to choose, the manager chose already: free ones that anybody may
        have taken since.  The process binds others then, and the manager learns which.
        """
        assert self.parent is not None
        self.process = self.bound.process
        self.pid = self.bound.process.pid
        self.pgid = os.getpgid(self.bound.process.pid)
        connection_file = self.parent.connection_file
        self.ready = await self.bound.begin({**self.order, "connection_file": connection_file})
        for name, port in self.ready["ports"].items():
            setattr(self.parent, name, port)
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

    ``ports``: for five Jupyter channels and the transfer's wire; 0 lets the system choose.
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
    provisioner.order = {**order, "ip": ip, "wire_port": wire_port, "any_ports": not any(channels)}
    manager.provisioner = provisioner
    await manager.start_kernel(env={})
    return manager, provisioner.ready


def _is_ours(ip: str) -> None:
    """Let jupyter_client know an address of this machine that it may not find by itself.

    It looks with tools that an image need not have; the control server is bound to ``ip``, which
    proves it.
    """
    if not localinterfaces.is_local_ip(ip):
        localinterfaces.LOCAL_IPS.append(ip)
