"""A supervisor as it runs in a lease pod: its environment, its address, its end.

Each pod has a loopback address of its own, so that the fixed range of ports is free there.
"""

import asyncio
import contextlib
import os
import random
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import psutil

from gpulease.protocol import names as protocol
from tests.companion.parts import TOKEN, Home, LeaseService
from tests.helpers import wait_for_async


class Pod:
    """One process of `gpulease companion --pod`."""

    def __init__(
        self,
        directory: Path,
        service_url: str,
        *,
        wrapper: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.lease_id = f"pod-{secrets.token_hex(6)}"
        self.ip = f"127.{random.randint(2, 250)}.{random.randint(2, 250)}.{random.randint(2, 250)}"
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.log = directory / "log"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "PYTHONPATH": os.pathsep.join(sys.path),
            protocol.ENV_LEASE: self.lease_id,
            protocol.ENV_ATTEMPT: "1",
            protocol.ENV_SERVICE_URL: service_url,
            protocol.ENV_POD_IP: self.ip,
            protocol.ENV_TOKEN_FILE: str(self.token_file),
            **(more or {}),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, "-P", "-m", "gpulease.companion", "--pod"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )

    def last_line(self) -> str:
        """Return what a provider would show."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    async def ended(self, seconds: float = 60) -> int:
        """Wait for the end; return the exit status."""
        await wait_for_async(lambda: self.process.poll() is not None, seconds, "the pod's end")
        return self.process.wait()

    def clean_up(self) -> None:
        """End the pod with all that it started, also where it became another user's."""
        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            for each in [*family, self.process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            _, left = psutil.wait_procs(family, timeout=30)
            assert not left
        self.process.wait()


async def admitted(service: LeaseService) -> Home:
    """Wait for a pod's hello, and have a home kernel admitted."""
    hello = await service.hello()
    home = Home(hello["address"], hello["public_key"])
    service.tell({"type": "admit", "client_key": home.public, "kernel_id": ""})
    await wait_for_async(lambda: service.of_type("admitted"), 30, "the key admitted")
    return home


@contextlib.asynccontextmanager
async def running(
    directory: Path, *, wrapper: Sequence[str] = (), **more: str
) -> AsyncIterator[tuple[LeaseService, Pod, Home]]:
    """A service, a pod that said hello to it, and an admitted home kernel."""
    service = LeaseService()
    pod = await asyncio.to_thread(Pod, directory, service.url, wrapper=wrapper, more=more)
    home: Home | None = None
    try:
        home = await admitted(service)
        yield service, pod, home
    finally:
        if home is not None:
            home.close()
        await asyncio.to_thread(pod.clean_up)
        await service.stop()
