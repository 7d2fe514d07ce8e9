"""``torchrun`` on every node of a lease without any option, and what needs no torchrun."""

import sys

import pytest

from gpulease.companion.nodes import nodes_of
from tests.companion.test_launch import begin

TRAIN = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print(f"node {os.environ['GROUP_RANK']} rank {dist.get_rank()} of {dist.get_world_size()}"
      f" sum {total.item():g}\\n", end="", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("torchrun", [True, False])
def test_torch_meets_on_two_nodes_of_two(tmp_path, torchrun):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    words = (sys.executable, *(("-m", "torch.distributed.run") if torchrun else ()), str(script))
    launch = begin(
        nodes_of("", 4, 2), *words, cwd=tmp_path, options=() if torchrun else ("--per-gpu",)
    )
    said, complaints = launch.communicate(timeout=300)
    assert launch.returncode == 0, complaints
    shown = sorted(line.partition("] ")[2] for line in said.splitlines() if " rank " in line)
    assert shown == [f"node {rank // 2} rank {rank} of 4 sum 6" for rank in range(4)]
