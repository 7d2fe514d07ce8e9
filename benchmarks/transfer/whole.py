"""One GiB of each kind to the companion and back, beside a bare socket of its bytes.

Each pair gives a ratio and a peak of memory.  The socket's receiver writes into memory that was
taken for it, of the same kind as an array of numpy has: the cost of touching it first belongs to
both.  The host of a virtual machine may take back free memory within a second, and then 1 GiB costs
2.5 s to touch that had cost 0.13 s.  So the same amount is touched just before each, and each of
ours has a socket before it and one after it, and is compared with the faster one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import mmap
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from benchmarks.kernels import OwnKernel, run
from benchmarks.measure import Variants, progress

#: On one machine, through shared memory.
SHARE = 1.0
#: Between two machines, by the cores that are there: with four, and with fewer.
SEALED = 0.8, 0.6
MIB = 2**20
#: A cell after which two processes of one machine do not meet in shared memory.
FAR = """
from gpulease.wire import shortcut
def nowhere(): raise OSError("as on another machine")
shortcut.Listening = nowhere
"""
START = """
import numpy as np, pandas as pd, os
_size = {size}
_base = np.random.default_rng(3).standard_normal(_size // 8)
"""
_KINDS = {
    "numpy": "value = _base + {n}",
    "frame": "value = pd.DataFrame((_base + {n}).reshape(-1, 8), columns=list('abcdefgh'))",
    "torch": "import torch; value = torch.from_numpy(_base) + {n}",
}
READ, CHANGE = "value is None", "value = value + 1"
_SENDER = """
import socket, sys
data = bytes(16 * 2**20)
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
left = int(sys.argv[2])
one.recv(1)
while left:
    left -= one.send(memoryview(data)[: min(left, len(data))])
one.recv(1)
"""


def kinds() -> dict[str, str]:
    """Return the kinds that can be made here, each with the cell that makes one."""
    there = importlib.util.find_spec("torch") is not None
    return {name: cell for name, cell in _KINDS.items() if name != "torch" or there}


def sealed_share() -> float:
    """Return the share of a bare socket that the sealed wire aims at here."""
    return SEALED[0] if (os.cpu_count() or 1) >= 4 else SEALED[1]


async def measure(
    kernel: OwnKernel, variants: Variants, cells: dict[str, str], *, rounds: int, size: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median ratio of each kind and way, and the MiB above what the aim allows."""
    pids = {
        side: int((await run(kernel, f"{where}import os; print(os.getpid())")).text)
        for side, where in (("home", ""), ("companion", "%%gpu\n"))
    }
    await run(kernel, "%%gpu\nimport numpy, pandas")
    ratios: dict[str, list[float]] = {}
    extra: dict[str, list[float]] = {}
    for number in range(rounds):
        for kind, cell in cells.items():
            await run(kernel, cell.format(n=number))
            for way, before, read in (
                ("to the companion", "", f"%%gpu\n{READ}"),
                ("home", f"%%gpu\n{CHANGE}", READ),
            ):
                name = f"{kind} {way}"
                await _quiet(pids.values())
                bare = await asyncio.to_thread(socket_seconds, size)
                await asyncio.to_thread(have_at_hand, 3 * size)
                if before:
                    await run(kernel, before)
                else:
                    await _quiet(pids.values())
                at_first = {side: _peak_from_now(pid) for side, pid in pids.items()}
                taken = (await run(kernel, read)).seconds
                for side, pid in pids.items():
                    grown = _status(pid, "VmHWM") - at_first[side]
                    extra.setdefault(f"{name}: {side}", []).append((grown - 2 * size) / MIB)
                await _quiet(pids.values())
                bare = min(bare, await asyncio.to_thread(socket_seconds, size))
                variants.add(name, taken)
                variants.add("bare socket", bare)
                ratios.setdefault(name, []).append(bare / taken)
            await run(kernel, "del value")
            await run(kernel, "%%gpu\npass")
    progress(f"transfer: ratios {ratios}")
    medians = {name: round(statistics.median(each), 2) for name, each in ratios.items()}
    return medians, {name: round(statistics.median(each)) for name, each in extra.items()}


def socket_seconds(size: int) -> float:
    """Return what a bare socket takes for as many bytes from another process into new memory."""
    import numpy as np

    have_at_hand(size)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, "-c", _SENDER, str(port), str(size)]
        with subprocess.Popen(command) as sender:
            one = server.accept()[0]
            started = time.perf_counter()
            one.send(b"g")
            into = np.empty(size, "u1").data
            got = 0
            while got < size:
                got += one.recv_into(into[got:])
            taken = time.perf_counter() - started
            one.close()
            sender.wait()
    return taken


def have_at_hand(size: int) -> None:
    """Touch so much memory and free it: whoever takes memory next takes what the host has given.

    See Linux's free page reporting.  Half of what is free is touched at most.
    """
    import numpy as np

    memory = np.empty(min(size, psutil.virtual_memory().available // 2), "u1")
    memory[:: mmap.PAGESIZE] = 1


async def _quiet(pids: Iterable[int]) -> None:
    """Wait until the processes do nothing: each looks at its values after a cell."""
    ticks = -1
    while ticks != (now := sum(_ticks(pid) for pid in pids)):
        ticks = now
        await asyncio.sleep(0.3)


def _ticks(pid: int) -> int:
    """Return the processor time that a process has had (hundredths of a second; 2 are nothing)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) // 3


def _peak_from_now(pid: int) -> int:
    """Begin to note the peak of a process's memory; return what it has now (bytes)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    return _status(pid, "VmRSS")


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{field} is not told of process {pid}")
