"""However the demo is ended, no process of it is left: not even what a cell started by itself."""

import asyncio
import signal

import psutil
import pytest

from tests.browser.demo import RunningDemo, running_demo
from tests.end_to_end.people import at_work, processes_of
from tests.helpers import process_is_gone, wait_for

pytestmark = pytest.mark.timeout(600)

RUNAWAY = """%%gpu
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("child", child.pid)"""


async def use(demo: RunningDemo) -> list[int]:
    """Have a lease with a process of its own; return the ids of all that runs."""
    async with at_work(demo, "student", tidy=False) as student:
        said = (await student.run(RUNAWAY)).text
        child = int(said.split("child")[1].split()[0])
        running = [process.pid for process in processes_of(demo)]
        assert child in running
        return running


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name
)
def test_nothing_is_left(how, tmp_path):
    with running_demo(tmp_path, "--gpus", "1") as demo:
        running = asyncio.run(use(demo))
        assert len(running) >= 6  # command, hub, proxy, service, server, kernel, ...
        command = psutil.Process(demo.pid)
        command.send_signal(how)
        wait_for(lambda: all(map(process_is_gone, running)), 90, "every process has ended")
