"""`gpulease demo --check`: the whole round with the shipped notebook, and what it says."""

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpulease.demo.check import check_demo
from gpulease.demo.launch import choose_ports
from gpulease.demo.options import DemoOptions

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


def living_in(directory: Path) -> list[str]:
    """Command lines of processes whose working directory is in this one."""
    found = []
    for process in psutil.process_iter(["cwd", "cmdline", "status"]):
        where = process.info["cwd"] or ""
        if where.startswith(str(directory)) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(" ".join(process.info["cmdline"] or []))
    return found


def test_the_whole_round(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gpulease", "demo", "--check", "--simulate"),
            *("--dir", str(tmp_path), "--idle", "10", "--warning", "3"),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    log = (tmp_path / "demo.log").read_text(errors="replace")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log[-6000:]}"
    steps = re.findall(r"ok +(\d+\.\d\d) s  (.*)", done.stdout)
    said = [name for _, name in steps]
    order = [
        "log in as student",
        "start the server, without a GPU",
        "open a kernel over its websocket",
        "idle: the lease is warned",
        "the lease ends, for being idle",
        "the same notebook in a plain kernel gives the same predictions",
        "stop the server",
    ]
    assert [name for name in said if name in order] == order
    assert sum("%%gpu" in name for name in said) >= 4
    assert "token" not in done.stdout.lower()
    assert not living_in(tmp_path)


def test_a_step_that_fails_is_named_with_the_log(tmp_path):
    said: list[str] = []
    nobody_listens = DemoOptions(directory=tmp_path, ports=choose_ports(0))
    assert check_demo(nobody_listens, said.append) == 1
    text = "\n".join(said)
    assert re.search(r"FAILED +log in as student", text)
    assert str(nobody_listens.log) in text
