"""A notebook of this version and a companion of another one: a copy of the package that runs."""

import subprocess
import sys
from pathlib import Path

import pytest

import gpulease
from gpulease.protocol.names import PROTOCOL_VERSION
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


@pytest.mark.parametrize(
    ("version", "protocol"), [(NEXT_PATCH, PROTOCOL_VERSION), *REFUSED], ids=str
)
def test_patches_fit_and_everything_else_is_refused_with_words(
    tmp_path: Path, version: str, protocol: str
) -> None:
    other = copy_of_package(tmp_path / "other", version, protocol)
    file = tmp_path / "lease.json"
    companion = subprocess.Popen(
        [sys.executable, "-m", "gpulease.companion", "--connection-file", str(file)],
        cwd=other.folder,
        env=other.environment,
        stdin=subprocess.DEVNULL,
    )
    kernel = HomeKernel(tmp_path / "kernel", {})
    try:
        kernel.run("%load_ext gpulease")
        kernel.run("x = [1]")
        wait_for(file.exists, 60, "the connection file")
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
    finally:
        kernel.stop()
        companion.terminate()
        companion.wait()
