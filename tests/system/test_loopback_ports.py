"""A port is given to one process only until its user binds it."""

import random
import socket
import subprocess
import sys

from gpulease.system import loopback_ports
from gpulease.system.loopback_ports import free_port, hold_port


def listen(port: int) -> socket.socket:
    """Bind a port as servers do."""
    return socket.create_server(("127.0.0.1", port))


def test_a_port_is_given_once_in_all_processes_and_its_user_may_bind_it(monkeypatch):
    seen: list[int] = []

    def choose(ports: range) -> int:
        seen.append(ports.start + len(seen) // 2)  # each one twice, here and in the other process
        return seen[-1]

    monkeypatch.setattr(random, "choice", choose)
    mine = [free_port() for _ in range(5)]
    assert len(set(mine)) == 5
    theirs = (
        "import random; from gpulease.system.loopback_ports import free_port\n"
        f"tried = iter({[*mine, max(mine) + 1]!r}); random.choice = lambda _: next(tried)\n"
        "print(free_port())"
    )
    asked = [sys.executable, "-c", theirs]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert int(done.stdout) not in mine
    with listen(mine[0]), socket.create_connection(("127.0.0.1", mine[0])):
        assert not hold_port(mine[0])
    with listen(mine[0]):  # started again, though a connection lingers
        pass


def test_few_are_held_at_once():
    for _ in range(200):
        free_port()
    assert len(loopback_ports._holders) <= 64
