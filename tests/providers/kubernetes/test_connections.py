"""The end of connections to an API server that does not say good-bye itself."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpulease.providers.kubernetes.api.client import PODS
from gpulease.providers.kubernetes.api.official import OfficialClient
from testcluster.pki import write_all
from tests.helpers import wait_for_async


class Mute:
    """An API server that takes connections and requests and never says a word."""

    def __init__(self, directory: Path) -> None:
        write_all(directory, directory, directory / "kubeconfig")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(directory / "apiserver.crt", directory / "apiserver.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.port = self._listener.getsockname()[1]
        self.asked: list[ssl.SSLSocket] = []
        document = json.loads((directory / "kubeconfig").read_text(encoding="utf-8"))
        cluster = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        document["clusters"][0]["cluster"] = cluster
        self.kubeconfig = directory / "mute.kubeconfig"
        self.kubeconfig.write_text(json.dumps(document), encoding="utf-8")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            taken = self._tls.wrap_socket(plain, server_side=True)
            taken.recv(65536)
            self.asked.append(taken)

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        for each in self.asked:
            each.close()

    def still_open(self) -> list[str]:
        """Return the states of this process's own ends of connections to it."""
        return [
            each.status
            for each in psutil.Process().net_connections("tcp")
            if each.raddr and each.raddr.port == self.port and each.fd != -1
        ]


@contextmanager
def mute(directory: Path) -> Iterator[Mute]:
    server = Mute(directory)
    try:
        yield server
    finally:
        server.end()


@pytest.mark.parametrize("calls", [1, 3])
async def test_a_client_that_is_closed_has_no_connection_left(tmp_path: Path, calls: int) -> None:
    """A cancelled call's connection waits for the server's good-bye: here it never comes."""
    with mute(tmp_path) as server:
        client = OfficialClient(str(server.kubeconfig))
        waiting = [asyncio.ensure_future(client.get(PODS, f"p{n}", "ns")) for n in range(calls)]
        await wait_for_async(lambda: len(server.asked) == calls, 60, "the calls to arrive")
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(server.still_open()) == calls
        began = time.monotonic()
        await client.close()
        assert server.still_open() == []
        assert time.monotonic() - began < 5


async def test_a_watch_that_is_cut_leaves_nothing_either(tmp_path: Path) -> None:
    with mute(tmp_path) as server:
        client = OfficialClient(str(server.kubeconfig))

        async def watch() -> None:
            async for _ in client.watch(PODS, "ns", since="1"):
                pass

        watching = asyncio.ensure_future(watch())
        await wait_for_async(lambda: server.asked, 60, "the watch to arrive")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await client.close()
        assert server.still_open() == []
        await client.close()  # a second time is nothing
