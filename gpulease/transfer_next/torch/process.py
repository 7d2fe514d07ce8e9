"""What belongs to torch's process: generators, numbers of hooks, switches."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from gpulease.sides.state.seeds import Seeds
from gpulease.transfer_next.state import Row

_seeds = Seeds()
_CUDNN = ("benchmark", "deterministic")
#: As many as the machine has processors, until a cell says otherwise.
_threads = [torch.get_num_threads(), False]


def _generator() -> bytes:
    return bytes(torch.get_rng_state().numpy())


def _set_generator(state: bytes) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _set_hooks(number: int) -> None:
    # A module keeps its hooks by number, and each process counts for itself.
    RemovableHandle.next_id = max(RemovableHandle.next_id, number)


def _print_options() -> dict[str, Any]:
    found: dict[str, Any] = vars(sys.modules["torch._tensor_str"].PRINT_OPTS)
    return found


def _switches() -> dict[str, Any]:
    return {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": [getattr(torch.backends.cudnn, name) for name in _CUDNN],
        "grad": torch.is_grad_enabled(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "precision": torch.get_float32_matmul_precision(),
        "print": dict(_print_options()),
    }


def _set_switches(new: dict[str, Any]) -> None:
    old = _switches()
    changed = {name: value for name, value in new.items() if old[name] != value}
    if "dtype" in changed:
        torch.set_default_dtype(getattr(torch, changed["dtype"]))
    if "deterministic" in changed:
        torch.use_deterministic_algorithms(changed["deterministic"])
    if "cudnn" in changed:
        for name, value in zip(_CUDNN, changed["cudnn"], strict=True):
            setattr(torch.backends.cudnn, name, value)
    if "grad" in changed:
        torch.set_grad_enabled(changed["grad"])
    if "anomaly" in changed:
        torch.autograd.set_detect_anomaly(*changed["anomaly"])
    if "precision" in changed:
        torch.set_float32_matmul_precision(changed["precision"])
    _print_options().update(changed.get("print", {}))


def _thread_number() -> int | None:
    number = torch.get_num_threads()
    _threads[1] = _threads[1] or number != _threads[0]
    return number if _threads[1] else None


def _set_thread_number(number: int) -> None:
    _threads[1] = True
    torch.set_num_threads(number)


ROWS: dict[str, Row] = {
    "torch.generator": (_generator, _set_generator),
    "torch.seeds": (_seeds.capture, _seeds.take),
    "torch.hooks": (lambda: RemovableHandle.next_id, _set_hooks),
    "torch.switches": (_switches, _set_switches),
    "torch.threads": (_thread_number, _set_thread_number),
}
