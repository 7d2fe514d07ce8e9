"""A home cell that asks for a GPU: the framework's own error, and what to do."""

import pytest

from gpulease.kernel.wrap import is_about_no_gpu, no_gpu_here
from tests.kernel.parts import HomeKernel


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("Torch not compiled with CUDA enabled"),
        RuntimeError("Found no NVIDIA driver on your system. Please check that you have ..."),
        RuntimeError("No CUDA GPUs are available"),
        RuntimeError("Attempting to deserialize object on a CUDA device but "
                     "torch.cuda.is_available() is False."),
        RuntimeError("Unknown backend cuda"),
        RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected"),
        RuntimeError("Error at driver init: CUDA driver library cannot be found."),
        RuntimeError("0 active drivers ([]). There should only be one."),
    ],
    ids=str,
)  # fmt: skip
def test_what_frameworks_say_is_known(error: Exception) -> None:
    assert is_about_no_gpu(error)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA out of memory"), ValueError("No CUDA GPUs are available"), KeyError("gpu")],
    ids=repr,
)
def test_another_error_is_left_alone(error: Exception) -> None:
    assert not is_about_no_gpu(error)


def test_the_error_says_what_to_do(fresh: HomeKernel) -> None:
    fresh.run("%load_ext gpulease")
    cell = fresh.run("raise RuntimeError('No CUDA GPUs are available')")
    assert "No CUDA GPUs are available" in "".join(cell.traceback)
    assert no_gpu_here("") in "".join(cell.traceback)
    cell = fresh.run("raise RuntimeError('something else')")
    assert no_gpu_here("") not in "".join(cell.traceback)
