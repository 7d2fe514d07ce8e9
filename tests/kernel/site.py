"""A home kernel beside a companion in a lease pod of its own address."""

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from gpulease.protocol import names as protocol
from tests.companion.parts import LeaseService
from tests.companion.pods import Pod
from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel


class Site:
    """A home kernel, and a lease pod that it is connected to."""

    def __init__(
        self, directory: Path, wrapper: Sequence[str] = (), more: Mapping[str, str] | None = None
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.work = directory / "home" / "work"
        self.work.mkdir(parents=True)
        (directory / "pod").mkdir()
        self.service = self.do(_service())
        home = self.work.parent
        self.pod = Pod(
            directory / "pod",
            self.service.url,
            wrapper=[part.format(home=home) for part in wrapper],
            more={name: value.format(home=home) for name, value in (more or {}).items()},
        )
        self.kernel = HomeKernel(directory / "kernel", {"HOME": str(home)})
        self.file = directory / "connection.json"

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something on the service's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(90)

    def connect(self, first: str) -> None:
        """Have the kernel's key admitted and connect it, after a cell of ``first``."""
        hello = self.do(self.service.hello())
        public, secret = zmq.curve_keypair()
        admit = {"type": "admit", "client_key": public.decode(), "kernel_id": ""}
        self.loop.call_soon_threadsafe(self.service.tell, admit)
        wait_for(lambda: self.service.of_type("admitted"), 30, "the key admitted")
        view = {
            "lease_id": self.pod.lease_id, "address": hello["address"], "gpu_class": "any",
            "server_key": hello["public_key"], "protocol": protocol.PROTOCOL_VERSION,
            "simulated": True, "devices": [], "client_public_key": public.decode(),
            "client_secret_key": secret.decode(),
        }  # fmt: skip
        self.file.touch(0o600)
        self.file.write_text(json.dumps(view))
        for line in (first, "%load_ext gpulease", f"%cd {self.work}", f"%gpu connect {self.file}"):
            cell = self.kernel.run(line)
            assert cell.ok, cell.traceback

    def gpu(self, code: str) -> str:
        """Run a GPU cell; return what it printed."""
        cell = self.kernel.run(f"%%gpu\n{code}")
        assert cell.ok, cell.traceback
        return cell.text()

    def close(self) -> None:
        self.kernel.stop()
        self.pod.clean_up()
        self.do(self.service.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


async def _service() -> LeaseService:
    return LeaseService()


@contextmanager
def connected(
    directory: Path,
    wrapper: Sequence[str] = (),
    more: Mapping[str, str] | None = None,
    first: str = "",
) -> Iterator[Site]:
    """A site, in whose kernel ``first`` ran before it was connected.

    ``{home}`` in the others stands for its home directory.
    """
    made = Site(directory, wrapper, more)
    try:
        made.connect(first)
        yield made
    finally:
        made.close()
