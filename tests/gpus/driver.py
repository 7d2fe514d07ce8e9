"""A stand-in for the ``pynvml`` module: the same names, two cards, and every error on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    """As the real one: an error code in ``value``."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class Card:
    """One card: what it answers."""

    uuid: str
    name: str = "NVIDIA Test"
    samples: list[tuple[int, int]] = field(default_factory=list)  # time stamp, per cent
    rate: int = 0
    compute: tuple[int, ...] = ()
    graphics: tuple[int, ...] = ()
    errors: dict[str, int] = field(default_factory=dict)  # function -> error code


class Driver:
    """The module; ``load`` it into an ``NVMLProbe``."""

    NVMLError = NVMLError
    NVML_GPU_UTILIZATION_SAMPLES = 1
    NVML_ERROR_UNINITIALIZED = 1
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_ERROR_NO_DATA = 21
    NVML_ERROR_GPU_NOT_FOUND = 28
    NVML_ERROR_UNKNOWN = 999

    def __init__(self, *cards: Card) -> None:
        self.cards = list(cards)
        self.errors: dict[str, int] = {}
        self.initialised = 0
        self.loaded = 0

    def load(self) -> Driver:
        self.loaded += 1
        return self

    def nvmlInit(self) -> None:
        self._fail("nvmlInit", self.errors)
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self._fail("nvmlShutdown", self.errors)
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._fail("nvmlDeviceGetCount", self.errors)
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        card = self.cards[index]
        self._fail("nvmlDeviceGetHandleByIndex", card.errors)
        return card

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return self._of(card, "nvmlDeviceGetUUID", card.uuid)

    def nvmlDeviceGetName(self, card: Card) -> bytes:  # older versions answer bytes
        return self._of(card, "nvmlDeviceGetName", card.name.encode())

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        memory = SimpleNamespace(total=16 * GIB, used=GIB)
        return self._of(card, "nvmlDeviceGetMemoryInfo", memory)

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> tuple[int, int]:
        return self._of(card, "nvmlDeviceGetCudaComputeCapability", (9, 0))

    def nvmlDeviceGetEccMode(self, card: Card) -> list[int]:
        return self._of(card, "nvmlDeviceGetEccMode", [1, 1])

    def nvmlDeviceGetSamples(self, card: Card, kind: int, last: int) -> tuple[int, list[Any]]:
        self._fail("nvmlDeviceGetSamples", card.errors)
        assert kind == self.NVML_GPU_UTILIZATION_SAMPLES
        return 1, [
            SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=use))
            for at, use in card.samples
            if at > last
        ]

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> Any:
        return self._of(card, "nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=card.rate))

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        found = [SimpleNamespace(pid=pid) for pid in card.compute]
        return self._of(card, "nvmlDeviceGetComputeRunningProcesses", found)

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: Card) -> list[Any]:
        found = [SimpleNamespace(pid=pid) for pid in card.graphics]
        return self._of(card, "nvmlDeviceGetGraphicsRunningProcesses", found)

    def _of(self, card: Card, name: str, answer: Any) -> Any:
        self._fail(name, card.errors)
        return answer

    def _fail(self, name: str, errors: dict[str, int]) -> None:
        code = errors.get(name, errors.get("*"))
        if code is not None:
            raise NVMLError(code)
