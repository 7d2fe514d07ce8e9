"""The load that tests run beside ends with what it was for, however that ends."""

import subprocess
from pathlib import Path

from tests.helpers import wait_for

TOOL = str(Path(__file__).parents[2] / "tools/under-load")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def works(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_runs_beside_it_and_its_status_is_given_back() -> None:
    command = ["sh", "-c", "cat /proc/$PPID/task/$PPID/children; exit 7"]
    done = subprocess.run([TOOL, "2", *command], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 7
    beside = [int(each) for each in done.stdout.split()]
    assert len(beside) == 4  # two that compute, one that writes, the command itself
    assert not any(map(works, beside))


def test_it_ends_with_who_started_it() -> None:
    with subprocess.Popen([TOOL, "1", "cat"], stdin=subprocess.PIPE) as started:
        beside = wait_for(
            lambda: len(found := children(started.pid)) == 3 and found, 30, "the load"
        )
        started.kill()
    wait_for(lambda: not any(map(works, beside)), 30, "the end of the load")
