"""A companion's kernel and its manager agree about the ports, whoever takes some of them before."""

import asyncio
import os
import signal
import socket
import sys

import jupyter_client.connect
import zmq

from gpulease.companion import tree
from gpulease.companion.manager import start_manager
from gpulease.companion.processes import CompanionProcess


def test_ports_that_were_free_a_moment_ago_are_not_counted_on(tmp_path, monkeypatch):
    write, taken = jupyter_client.connect.write_connection_file, {}

    def taken_since(*args, **named):
        name, info = write(*args, **named)
        for port in (info[each] for each in info if each.endswith("_port")):
            if port not in taken:
                taken[port] = socket.create_server(("127.0.0.1", port))
        return name, info

    async def test():
        bound = await CompanionProcess.start(sys.executable, dict(os.environ), tmp_path)
        try:
            await bound.prepared()
            order = {
                "kernel_id": "k1", "cwd": str(tmp_path), "path": sys.path, "packages": [],
                "environ": {**os.environ, "GPULEASE_LEASE": "lease-1"}, "merge_path": False,
                "wire_key": zmq.curve_keypair()[0].decode(), "park_limit": 0,
            }  # fmt: skip
            with monkeypatch.context() as patch:
                patch.setattr(jupyter_client.connect, "write_connection_file", taken_since)
                manager, ready = await start_manager(bound, order, tmp_path, "127.0.0.1", [0] * 6)
            info = manager.get_connection_info()
            assert len(taken) == 5
            assert taken.keys().isdisjoint(ready["ports"].values())
            assert {name: info[name] for name in ready["ports"]} == ready["ports"]
            for port in ready["ports"].values():
                socket.create_connection(("127.0.0.1", port)).close()
            await manager.cleanup_resources()
        finally:
            tree.signal_all([bound.process.pid], signal.SIGKILL)
            bound.link.close()
            bound.process.wait()
            for each in taken.values():
                each.close()

    asyncio.run(test())
