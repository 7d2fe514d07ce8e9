"""A real GPU, where this machine has one."""

from __future__ import annotations

import subprocess
import sys

import pytest

REAL = """
from gpulease.gpus.nvml import NVMLProbe

probe = NVMLProbe()
infos = probe.inventory()
assert infos, probe.problem
assert all(info.uuid.startswith("GPU-") and info.memory > 0 for info in infos)
samples = probe.sample()
assert [each.uuid for each in samples] == [info.uuid for info in infos]
assert all(each.gap or 0 <= (each.utilisation or 0) <= 1 for each in samples)
probe.close()
"""


@pytest.mark.gpu
def test_a_real_gpu_is_found_and_read() -> None:
    subprocess.run(
        [sys.executable, "-c", REAL], check=True
    )  # another process: the stand-in may be loaded here
