"""Errors of a home cell that asks for a GPU where there is none."""

from __future__ import annotations

import re

#: What torch, JAX, CuPy, numba, triton and the CUDA runtime say.
_SAYS_SO = re.compile(
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|torch\.cuda\.is_available\(\) is False|Unknown backend:? '?(cuda|gpu)|no CUDA-capable device"
    r"|cudaErrorNoDevice|cudaErrorInsufficientDriver|CUDA driver version is insufficient"
    r"|Unable to initialize backend '(cuda|gpu)'|CUDA driver library cannot be found"
    r"|Error at driver init|0 active drivers"
)


def no_gpu_here(why_not: str) -> str:
    """Return what to do; ``why_not`` says why ``%gpu auto`` did not do it, "" where it is off."""
    told = f" %gpu auto did not take it there: {why_not}." if why_not else ""
    return (
        "Your notebook itself runs without a GPU. To use one, put %%gpu on the cell's first line."
        + told
    )


def is_about_no_gpu(error: BaseException) -> bool:
    """Say whether ``error`` is a framework's way of saying that this machine has no GPU."""
    return isinstance(error, RuntimeError | AssertionError) and bool(_SAYS_SO.search(str(error)))
