"""What an MPI's launcher is told, and that its way to the other nodes leads there."""

import sys
from pathlib import Path

import pytest

from gpulease.companion.nodes import MPI, Node, called, interface_of
from tests.companion.test_member import group

pytestmark = pytest.mark.processes

#: Does what mpirun does: a part on each host by the launcher's agent, all of them at once.
MPIRUN = """
import os, pathlib, subprocess, sys
file, agent, *words = sys.argv[1:]
lines = pathlib.Path(os.environ[file]).read_text().splitlines()
print("hosts", *lines, sep="|", flush=True)
hosts = [line.partition(" ")[0].partition(":")[0] for line in lines]
called = [os.environ[agent], *(["-x"] if agent.startswith("HYDRA") else [])]
parts = [subprocess.Popen([*called, host, *words], stdin=subprocess.DEVNULL) for host in hosts]
sys.exit(max(part.wait() for part in parts))
"""
LAUNCH = f"!{sys.executable} -P -m gpulease launch --mpi {sys.executable} mpirun.py"
#: By MPI: the variables that name hosts and agent, how a line says two places, and what comes
#: before its own program (Open MPI 5 was seen to call its agent so).
HYDRA = ("HYDRA_HOST_FILE HYDRA_LAUNCHER_EXEC", ":2", "")
LAUNCHERS = [
    HYDRA,
    ("I_MPI_HYDRA_HOST_FILE I_MPI_HYDRA_BOOTSTRAP_EXEC", ":2", ""),
    ("OMPI_MCA_orte_default_hostfile OMPI_MCA_plm_rsh_agent", " slots=2", ""),
    (
        "PRTE_MCA_prte_default_hostfile PRTE_MCA_plm_ssh_agent",
        " slots=2",
        "'PRTE_PREFIX=/a b;export PRTE_PREFIX;true' --tree-spawn '\"x;y\"' ';'",
    ),
]
RUN = f"{LAUNCH} {HYDRA[0]}"


async def test_it_starts_its_parts_on_each_node_by_the_agent(tmp_path: Path) -> None:
    (tmp_path / "mpirun.py").write_text(MPIRUN)
    async with group(tmp_path) as pods, pods.cells(tmp_path) as cells:
        first, second = pods.pods
        for variables, places, before in LAUNCHERS:
            words = f"{before} 'echo part on \"$HOME\" in $PWD;' 'exit 0'"
            said = await cells.text(f"{LAUNCH} {variables} {words}; echo st $?")
            assert f"hosts|{first.ip}{places}|{second.ip}{places}" in said
            assert f"part on {second.token_file.parent} in {tmp_path}" in said, said
            assert said.count("part on") == 2
            assert "[0]" not in said, "it speaks for itself"
            assert "st 0" in said
        failed = await cells.text(f"{RUN} 'exit 3'; echo status $?")
        assert "status 3" in failed
        assert "rank 0 failed" not in failed
        stranger = await cells.text(
            f"!{sys.executable} -P -m gpulease launch --agent -- 10.1.2.3 true; echo status $?"
        )
        assert "none of this lease's nodes" in stranger
        assert "status 0" not in stranger


def test_nodes_of_one_machine_are_one_host_with_the_gpus_of_all() -> None:
    with MPI([Node(gpus=2, devices="a,b"), Node(gpus=2, devices="c,d")], 2) as told:
        assert Path(told["HYDRA_HOST_FILE"]).read_text() == "127.0.0.1:4\n"
        assert Path(told["OMPI_MCA_orte_default_hostfile"]).read_text() == "127.0.0.1 slots=4\n"
        assert told["CUDA_VISIBLE_DEVICES"] == "a,b,c,d"
        assert told["HYDRA_IFACE"] == interface_of("127.0.0.1") == "lo"
        place = Path(told["HYDRA_HOST_FILE"]).parent
        assert place.stat().st_mode & 0o077 == 0
        # The agent is on the first node only: no other node is to start some of the parts.
        assert told["OMPI_MCA_plm_rsh_no_tree_spawn"] == "1"
        assert told["PRTE_MCA_plm_ssh_no_tree_spawn"] == "1"
    assert not place.exists()
    pods = [Node("10.0.0.1", 2, None), Node("10.0.0.2", 2, None, "tcp://10.0.0.2:1", "key")]
    with MPI(pods, 1) as told:
        assert "CUDA_VISIBLE_DEVICES" not in told
        assert "HYDRA_IFACE" not in told, "nobody here has that address"


@pytest.mark.parametrize(
    ("words", "host", "text"),
    [
        (
            ["-x", "10.0.0.2", '"/a b/proxy"', "--port", "h:1"],
            "10.0.0.2",
            '"/a b/proxy" --port h:1',
        ),
        (["10.0.0.2", "orted"], "10.0.0.2", "orted"),
        ([], "", ""),
    ],
)
def test_an_agent_is_called_as_ssh_is(words: list[str], host: str, text: str) -> None:
    assert called(words) == (host, ["/bin/sh", "-c", text])
