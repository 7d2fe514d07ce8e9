"""The demo's options, its people, and the time-outs of its first policy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gpulease.errors import GPULeaseError

#: Carries the options from ``gpulease demo`` to the hub's configuration file.
ENV_OPTIONS: Final = "GPULEASE_DEMO_OPTIONS"

#: A day in seconds, and GiB of one GPU: a demo that is told more is not meant so.
LONGEST: Final = 86400.0
LARGEST: Final = 1024.0

GROUP: Final = "cs101"
NOTEBOOK: Final = "gpu-digits.ipynb"
#: For who has torch.
TORCH_NOTEBOOK: Final = "gpu-torch.ipynb"


@dataclass(frozen=True)
class Person:
    """Somebody who can log in to the demo; the password is no secret and is printed."""

    name: str
    password: str
    does: str


PEOPLE: Final = (
    Person("student", "student", "has a notebook, and wants a GPU in it"),
    Person(
        "student2", "student2", "wants one too: log in from a private window and watch the queue"
    ),
    Person("instructor", "instructor", f"teaches {GROUP}, and sees the group's leases"),
    Person("admin", "admin", "sees everything, ends leases and changes the time-outs"),
)


@dataclass(frozen=True)
class Ports:
    """The loopback ports of one demo."""

    public: int
    hub: int
    proxy: int
    service: int


@dataclass(frozen=True)
class DemoOptions:
    """One demo.  Durations in seconds, ``memory`` in GiB of one simulated GPU."""

    directory: Path
    ports: Ports
    gpus: int = 2
    simulate: bool = False
    gpu_name: str = "Simulated GPU"
    memory: float = 16.0
    idle: float = 60.0
    warning: float = 20.0
    warm_up: float = 5.0
    quiet: float = 600.0
    drain: float = 30.0
    wait: float = 300.0

    @property
    def url(self) -> str:
        """The one address a person needs."""
        return f"http://127.0.0.1:{self.ports.public}/"

    @property
    def log(self) -> Path:
        """Where hub, proxy, service and servers write."""
        return self.directory / "demo.log"

    @property
    def state_file(self) -> Path:
        """Written when the demo is ready, for programs that wait for it."""
        return self.directory / "demo.json"

    def time_outs(self) -> dict[str, float]:
        """Return the time-outs of the first policy; what is not here keeps its default."""
        return {
            "idle": self.idle,
            "idle_under_pressure": self.idle,
            "warning": self.warning,
            "warm_up": self.warm_up,
            "quiet": self.quiet,
            "drain_max": self.drain,
            "wait": self.wait,
        }

    def to_json(self) -> str:
        """Return the options as text for the environment of the hub."""
        return json.dumps({**asdict(self), "directory": str(self.directory)})

    @classmethod
    def from_json(cls, text: str) -> DemoOptions:
        """Read what ``to_json`` wrote."""
        members: dict[str, Any] = json.loads(text)
        members["directory"] = Path(members["directory"])
        members["ports"] = Ports(**members["ports"])
        return cls(**members)

    def check(self) -> DemoOptions:
        """Return the options themselves.

        Raises:
            GPULeaseError: ``bad_option`` where a number cannot be meant.
        """
        durations = {
            "idle": self.idle,
            "warning": self.warning,
            "quiet": self.quiet,
            "drain": self.drain,
            "wait": self.wait,
        }
        for name, seconds in durations.items():
            if not 0 < seconds <= LONGEST:
                raise _bad(
                    f"--{name} must be from more than 0 to {LONGEST:g} seconds, not {seconds:g}."
                )
        if not 0 <= self.warm_up <= LONGEST:
            raise _bad(f"--warm-up must be from 0 to {LONGEST:g} seconds, not {self.warm_up:g}.")
        if not 1 <= self.gpus <= 64:
            raise _bad(f"--gpus must be from 1 to 64, not {self.gpus}.")
        if not 0 < self.memory <= LARGEST:
            raise _bad(
                f"--memory must be more than 0 GiB and at most {LARGEST:g}, not {self.memory:g}."
            )
        return self


def _bad(sentence: str) -> GPULeaseError:
    return GPULeaseError("bad_option", sentence, next_step="See gpulease demo --help.")
