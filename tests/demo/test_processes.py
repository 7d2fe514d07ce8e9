"""Whatever the demo starts ends with it, sessions of its own or not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import process_is_gone, wait_for

# Starts a program that leaves a daemon (own session, parent gone) and a child that ignores SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
from pathlib import Path
out = Path(sys.argv[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        (out / "daemon").write_text(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (out / "deaf").write_text(str(os.getpid()))
    time.sleep(600)
    os._exit(0)
(out / "program").write_text(str(os.getpid()))
time.sleep(600)
"""

STARTER = """
import os, sys
from pathlib import Path
from gpulease.companion import tree
from gpulease.demo import processes
out = Path(sys.argv[1])
tree.become_subreaper()
with open(out / "log", "wb") as log:
    program = processes.start(
        [sys.executable, str(out / "stubborn.py"), str(out)],
        environment=os.environ, directory=out, output=log,
    )
(out / "started").touch()
sys.stdin.readline()
processes.end(program, grace=5.0)
print(program.returncode, flush=True)
"""


@pytest.fixture
def starter(tmp_path):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process, tmp_path
    process.kill()
    process.communicate()
    for name in ("daemon", "deaf", "program"):
        if (tmp_path / name).exists():
            pid = int((tmp_path / name).read_text())
            if not process_is_gone(pid):
                os.kill(pid, signal.SIGKILL)


def pids(directory: Path) -> list[int]:
    def all_there():
        names = ("daemon", "deaf", "program")
        return all((directory / n).exists() and (directory / n).read_text() for n in names)

    wait_for(all_there, what="daemon, deaf child and program run")
    return [int((directory / n).read_text()) for n in ("daemon", "deaf", "program")]


def test_daemons_and_the_deaf_are_ended_too(starter):
    process, directory = starter
    running = pids(directory)
    said, _ = process.communicate("\n", timeout=60)
    assert int(said) == -signal.SIGTERM
    assert all(process_is_gone(pid) for pid in running)


def test_the_program_is_asked_to_end_when_its_starter_is_killed(starter):
    process, directory = starter
    _daemon, _deaf, program = pids(directory)
    process.kill()
    wait_for(lambda: process_is_gone(program), what="the program ended with its starter")
