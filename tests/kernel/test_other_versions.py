"""A notebook and a companion that differ: in gpulease (a copy that says so), and in Python."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest

import gpulease
from gpulease.protocol.names import PROTOCOL_VERSION
from tests import another_python
from tests.another_version import (
    NEXT_MINOR,
    NEXT_PATCH,
    NEXT_PROTOCOL,
    copy_of_package,
)
from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel

pytestmark = pytest.mark.processes
OURS = gpulease.__version__
REFUSED = {
    (NEXT_MINOR, PROTOCOL_VERSION): f"The notebook has gpulease {OURS}, the lease {NEXT_MINOR}.",
    (OURS, NEXT_PROTOCOL): f"speaks protocol {PROTOCOL_VERSION}, the lease {NEXT_PROTOCOL}.",
}


@contextmanager
def kernel_beside(
    command: list[str],
    directory: Path,
    file: Path,
    end: Callable[[Popen[bytes]], None] = Popen.terminate,
    **more: Any,
) -> Iterator[HomeKernel]:
    """Run a kernel that holds x, and a companion that writes its connection to ``file``."""
    companion = Popen(command, stdin=DEVNULL, **more)
    kernel = HomeKernel(directory)
    try:
        kernel.run("%load_ext gpulease")
        kernel.run("x = [1]")
        wait_for(file.exists, 120, "the connection file")
        yield kernel
    finally:
        kernel.stop()
        end(companion)
        companion.wait()


@pytest.mark.parametrize(
    ("version", "protocol"), [(NEXT_PATCH, PROTOCOL_VERSION), *REFUSED], ids=str
)
def test_patches_fit_and_everything_else_is_refused_with_words(
    tmp_path: Path, version: str, protocol: str
) -> None:
    other = copy_of_package(tmp_path / "other", version, protocol)
    file = tmp_path / "lease.json"
    command = [sys.executable, "-m", "gpulease.companion", "--connection-file", str(file)]
    where = {"cwd": other.folder, "env": other.environment}
    with kernel_beside(command, tmp_path / "kernel", file, **where) as kernel:
        connected = kernel.run(f"%gpu connect {file}")
        refusal = REFUSED.get((version, protocol))
        if refusal is None:
            assert connected.ok, connected.traceback
            assert kernel.run("%%gpu\nx.append(2); y = x").ok
            assert kernel.run("x, y is x").result == "([1, 2], True)"
            return
        assert refusal in connected.error
        assert "Install the same version of gpulease on both sides" in connected.traceback
        assert kernel.run("x").result == "[1]", "the notebook runs on"


@another_python.needed
@pytest.mark.timeout(600)  # its tree may have to be copied first
def test_another_python_is_refused_with_words(tmp_path: Path) -> None:
    there = f"/tmp/lease-{os.getpid()}.json"
    file = another_python.TREE / there.lstrip("/")
    command = another_python.command("-m", "gpulease", "companion", "--connection-file", there)
    try:
        with kernel_beside(command, tmp_path / "kernel", file, end=Popen.kill) as kernel:
            connected = kernel.run(f"%gpu connect {file}")
            assert f"Python {another_python.VERSION}" in connected.error
            assert "Use a kernel with the same minor version of Python" in connected.traceback
            assert kernel.run("x").result == "[1]", "the notebook runs on"
    finally:
        file.unlink(missing_ok=True)
