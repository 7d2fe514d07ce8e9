"""One command on every node of a lease: what each process is told, and that they end together."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.companion.nodes import Node, environments, from_text, nodes_of, to_text
from gpulease.protocol.names import ENV_NODES
from tests.companion.parts import Cells, closing, leased
from tests.helpers import process_is_gone, wait_for

pytestmark = pytest.mark.processes

#: What `torch.distributed` does with the variables: all meet at the first one, and add up.
MEET = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(peer.makefile().readline()) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d\\n" % total)
        peer.close()
else:
    while True:  # the first one may not listen yet
        try:
            peer = socket.create_connection(place, 60)
        except ConnectionRefusedError:
            continue
        break
    peer.sendall(b"%d\\n" % rank)
    total = int(peer.makefile().readline())
print(rank, "of", size, "on", os.environ.get("CUDA_VISIBLE_DEVICES"), "total", total)
"""
#: One ends badly once all are there; the others would wait for it for ever.
FAIL = """
import os, pathlib, signal, sys, time
rank = os.environ["RANK"]
pathlib.Path(rank).write_text(str(os.getpid()))
pathlib.Path(rank + ".there").touch()
while rank == "1" and len(list(pathlib.Path().glob("*.there"))) < 3:
    time.sleep(0.01)
if rank == "1":
    sys.exit(7)
signal.pause()
"""
WAIT = "import os, pathlib, signal\npathlib.Path(os.environ['RANK']).touch()\nsignal.pause()"


def begin(
    nodes: list[Node], *words: str, cwd: Path | None = None, options: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gpulease", "launch", *options, *words],
        # Nothing of this machine's own driver counts.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", ENV_NODES: to_text(nodes)},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def ending(process: subprocess.Popen[str]):
    """End a launch that a failing test leaves: what it started ends with it."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


@given(st.integers(1, 5), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_every_gpu_is_on_one_node_and_every_rank_there_once(number, gpus, real, each):
    devices = [f"GPU-{n}" for n in range(number * gpus)] if real else []
    nodes = nodes_of(",".join(devices), number * gpus, number)
    assert from_text(to_text(nodes)) == nodes
    assert [node.gpus for node in nodes] == [gpus] * number
    assert [uuid for node in nodes if node.devices for uuid in node.devices.split(",")] == devices
    told = list(environments(nodes, each, 4321))
    assert [int(one["RANK"]) for one in told] == list(range(number * each))
    places = {(one["NODE_RANK"], one["LOCAL_RANK"]) for one in told}
    assert len(places) == len(told)
    for one in told:
        mine = nodes[int(one["NODE_RANK"])]
        assert one["CUDA_VISIBLE_DEVICES"] == mine.devices
        assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == (nodes[0].address, "4321")
        assert (one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) == (str(number * each), str(each))
        assert (one["PET_NNODES"], one["PET_NPROC_PER_NODE"]) == (str(number), str(gpus))


def test_one_node_keeps_its_devices_as_they_are():
    assert nodes_of("GPU-a,GPU-b", 2, 1) == [Node(gpus=2, devices="GPU-a,GPU-b")]
    assert nodes_of(None, 0, 1) == [Node()]
    (told,) = environments([Node()], 1, 1)
    assert "CUDA_VISIBLE_DEVICES" not in told, "there it is the container's to say"
    assert told["PET_NPROC_PER_NODE"] == "gpu"


@pytest.mark.parametrize(("options", "size"), [((), 2), (("--per-gpu",), 4), (("--procs", "3"), 6)])
def test_processes_of_all_nodes_meet_at_the_first(options, size):
    nodes = nodes_of("a,b,c,d", 4, 2)
    launch = begin(nodes, sys.executable, "-c", MEET, options=options)
    said, complaints = launch.communicate(timeout=120)
    assert (launch.returncode, complaints) == (0, "")
    total = sum(range(size))
    assert sorted(said.splitlines(), key=lambda line: int(line[1 : line.index("]")])) == [
        f"[{rank}] {rank} of {size} on {'a,b' if rank < size // 2 else 'c,d'} total {total}"
        for rank in range(size)
    ]


def test_one_failure_ends_all_and_says_whose_it_was(tmp_path):
    launch = begin([Node()] * 3, sys.executable, "-c", FAIL, cwd=tmp_path)
    with ending(launch):
        _, complaints = launch.communicate(timeout=120)
    assert launch.returncode == 7
    assert "rank 1 failed (status=7); the others are ended" in complaints
    for rank in ("0", "2"):
        assert process_is_gone(int((tmp_path / rank).read_text()))


def test_an_interrupt_ends_all(tmp_path):
    with ending(begin([Node()] * 2, sys.executable, "-c", WAIT, cwd=tmp_path)) as launch:
        wait_for(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists(), 60, "both run")
        launch.send_signal(signal.SIGINT)
        assert launch.wait(60) == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Say what is to be run"),
        (("no-such-program",), "There is no program 'no-such-program'"),
        (("--per-gpu", "true"), "say --procs N"),
        (("--procs", "0", "true"), "a whole number from 1"),
    ],
)
def test_what_cannot_be_launched_is_refused(words, said):
    launch = begin([Node()], *words)
    assert said in launch.communicate(timeout=60)[1]
    assert launch.returncode == 2


def test_a_gpu_cell_launches_on_all_nodes_of_its_lease_and_sees_the_first_itself(tmp_path):
    command = f"{sys.executable} -P -m gpulease launch {sys.executable} -c 'import os; " + (
        'print(os.environ["RANK"], os.environ["CUDA_VISIBLE_DEVICES"])\''
    )

    async def test():
        nodes = {"devices": "a,b,c,d,e,f", "count": 6, "nodes": 3}
        async with leased(**nodes) as (_, _lease, home):
            opened = (await home.open("k1", cwd=str(tmp_path)))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                seen = await cells.text("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
                assert seen == "a,b\n"
                told = await cells.text(
                    "print(os.environ.get('RANK'), os.environ['GPULEASE_NODES'])"
                )
                assert told.startswith("None "), "a library would wait for others in any cell"
                assert len(json.loads(told.removeprefix("None "))) == 3
                shown = await cells.text(f"!{command}")
                assert sorted(shown.splitlines()) == ["[0] 0 a,b", "[1] 1 c,d", "[2] 2 e,f"]

    asyncio.run(test())
