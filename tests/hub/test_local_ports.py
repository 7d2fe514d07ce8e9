from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner

from gpulease.hub import LocalGPULeaseSpawner
from gpulease.hub.local_ports import OwnPortMixin
from gpulease.hub.wrapping import wrap_spawner


class TellsItsPort(LocalProcessSpawner):
    async def start(self):
        return self.port


class Local(OwnPortMixin, TellsItsPort):
    pass


def kernels_own() -> range:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return range(int(first), int(last) + 1)


def test_a_server_gets_a_port_that_no_other_process_is_given_before_it_binds_it():
    port = asyncio.run(Local().start())
    assert port not in kernels_own()
    socket.create_server(("127.0.0.1", port)).close()  # as servers bind theirs


def test_a_start_after_one_that_failed_takes_another_port():
    spawner = Local()
    first = asyncio.run(spawner.start())
    with socket.create_server(("127.0.0.1", first)):
        assert asyncio.run(spawner.start()) not in (0, first)


def test_a_configured_port_stays():
    spawner = Local(port=18_888)
    assert [asyncio.run(spawner.start()) for _ in range(2)] == [18_888, 18_888]


def test_every_spawner_of_local_processes_has_it():
    assert issubclass(LocalGPULeaseSpawner, OwnPortMixin)
    wrapped = wrap_spawner("simple")
    assert issubclass(wrapped, SimpleLocalProcessSpawner)
    assert issubclass(wrapped, OwnPortMixin)
