"""What lives where it was made: named once under its cell, absent by name at home."""

import pytest

from gpulease.errors import GPULeaseError

#: Small ones of the same name and shape: the real packages are large, and vLLM needs a GPU.
MODULES = {
    "wandb": "class Run:\n    def __init__(self): self.lock = __import__('threading').Lock()",
    "vllm": "class LLM: pass",
    "tensorboardX": "class SummaryWriter: pass",
}
MADE = {"wandb": "Run", "vllm": "LLM", "tensorboardX": "SummaryWriter"}


@pytest.fixture
def pair(new_pair):
    """A reply waits for what its cell made: what is late is said under the next cell."""
    made = new_pair()
    made.attach()
    return made


def notes(pair):
    return [note.sentence for note in pair.after.notes if note.reason == "stays"]


@pytest.mark.parametrize("package", MODULES)
def test_it_is_said_once_and_is_absent_by_name(pair, tmp_path, package):
    (tmp_path / f"{package}.py").write_text(MODULES[package])
    pair.gpu(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"from {package} import {MADE[package]} as make\nthing = make(); beside = [1]"
    )
    assert len(notes(pair)) == 1
    assert notes(pair)[0].startswith("thing stays on the GPU: it is a")
    pair.gpu("beside.append(2)")
    assert notes(pair) == []
    pair.home("assert beside == [1, 2]")
    with pytest.raises(GPULeaseError, match="thing cannot travel"):
        pair.home("thing")
