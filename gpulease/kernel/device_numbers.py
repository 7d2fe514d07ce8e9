"""What a library means that reads numbers where a lease's devices are named by identifier."""

from __future__ import annotations

import re

_NOT_A_NUMBER = re.compile(r"""invalid literal for int\(\).*?['"]\s*(GPU|MIG)-""")


def numbers_wanted(evalue: str) -> str:
    """Say how a library gets numbers, or ``""`` where its error is about something else.

    vLLM and DeepSpeed call ``int()`` on each part of ``CUDA_VISIBLE_DEVICES``.
    """
    found = _NOT_A_NUMBER.search(evalue)
    if found is None:
        return ""
    if found[1] == "MIG":
        return (
            "The library expects numbers in CUDA_VISIBLE_DEVICES, and a MIG device has none: it"
            " needs a whole GPU."
        )
    return (
        "The library expects numbers in CUDA_VISIBLE_DEVICES. A GPU class of your site's policy"
        " gives them with `devices_by: index`: ask your admin."
    )
