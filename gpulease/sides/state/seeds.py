"""Generators of devices: what ``torch.manual_seed`` at home means on the GPU, and later.

A seed counts when it was *set* since the last switch, not when its number changed: a cell that
seeds with the same number again starts again.  What devices drew since then is their generators'
state, which home keeps for the next companion.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpulease.sides.libraries import library


class State(NamedTuple):
    """How often a seed was set and to what (0: never), and generators' states since, by device."""

    times: int = 0
    seed: int = 0
    devices: tuple[tuple[str, tuple[bytes, ...]], ...] = ()


class Seeds:
    """One side's generators of torch's devices; needs no device, and initialises none."""

    def __init__(self) -> None:
        self._now = State()
        self._queued: Any = None
        self._pending: State | None = None

    def capture(self) -> State | None:
        """Return the last seed and states of this process or, where it has none, what it was told.

        None where there is nothing to tell.
        """
        if self._pending is not None:
            return self._pending
        queued = _queued()
        if queued is not None and queued is not self._queued:
            self._queued = queued
            self._now = State(self._now.times + 1, sys.modules["torch"].initial_seed())
        drawn = {name: _states(module) for name, module in _modules() if module.is_initialized()}
        if drawn:
            known = dict(self._now.devices) | drawn
            self._now = self._now._replace(devices=tuple(sorted(known.items())))
        return self._now if self._now != State() else None

    def take(self, state: State | None) -> None:
        """Remember what the other side told, for ``settle``."""
        if state is not None and state != self._now:
            self._pending = state
            self.settle()

    def settle(self) -> None:
        """Give the devices of this process their generators' states, as soon as torch is there.

        It waits for the first use of a device: torch runs seeds that wait after all else that does,
        so a seed from before these states must not wait with them.
        """
        torch = library("torch")
        if self._pending is None or torch is None or not hasattr(torch, "manual_seed"):
            return
        told, self._pending = self._pending, None
        drawn = dict(told.devices)
        for name, module in _modules():
            if name in drawn:
                _set_states(torch, module, drawn[name])
            elif told.times != self._now.times:
                module.manual_seed_all(told.seed)
        self._now, self._queued = told, _queued()


def _modules() -> Iterator[tuple[str, Any]]:
    """Return the devices of this torch that have generators, by name; CUDA also where none is."""
    torch = library("torch")
    for name in ("cuda", "xpu", _registered()) if torch is not None else ():
        module = getattr(torch, name, None)
        if all(hasattr(module, each) for each in ("get_rng_state_all", "is_initialized")):
            yield name, module


def _registered() -> str:
    """Return the name of the device that an extension of torch added, if one did."""
    ask = getattr(sys.modules.get("torch._C"), "_get_privateuse1_backend_name", None)
    return str(ask()) if ask is not None else ""


def _states(module: Any) -> tuple[bytes, ...]:
    return tuple(bytes(state.numpy()) for state in module.get_rng_state_all())


def _set_states(torch: Any, module: Any, states: tuple[bytes, ...]) -> None:
    tensors = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states]

    def give() -> None:
        module.set_rng_state_all(tensors[: module.device_count()])

    later = getattr(module, "_lazy_call", None)
    later(give) if later is not None else give()


def _queued() -> Any:
    """Return the call that seeds all devices once there is one: a new one each time it is asked.

    A process whose device is in use seeds it at once and queues nothing.
    """
    cuda = sys.modules.get("torch.cuda")
    tracker = getattr(cuda, "_lazy_seed_tracker", None)
    return getattr(tracker, "manual_seed_all_cb", None)
