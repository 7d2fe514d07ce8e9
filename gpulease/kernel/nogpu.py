"""Errors of a home cell that asks for a GPU where there is none."""

from __future__ import annotations

import re

NO_GPU_HERE = (
    "Your notebook itself runs without a GPU. To use one, put %%gpu on the cell's first line."
)
#: What torch, JAX, CuPy and the CUDA runtime say.
_SAYS_SO = re.compile(
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|torch\.cuda\.is_available\(\) is False|Unknown backend:? '?(cuda|gpu)|no CUDA-capable device"
    r"|cudaErrorNoDevice|cudaErrorInsufficientDriver|CUDA driver version is insufficient"
    r"|Unable to initialize backend '(cuda|gpu)'"
)


def is_about_no_gpu(error: BaseException) -> bool:
    """Say whether ``error`` is a framework's way of saying that this machine has no GPU."""
    return isinstance(error, RuntimeError | AssertionError) and bool(_SAYS_SO.search(str(error)))
