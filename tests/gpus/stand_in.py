"""The NVML stand-in: builds ``nvml_stand_in.c`` and writes the file that it answers from.

The library has the real one's name, so the real ``pynvml`` loads it: in this process once ``load``
was called, in others by ``LD_LIBRARY_PATH`` and ``NVML_STAND_IN`` (``environment``).
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stand_in.c")
LIBRARY = "libnvidia-ml.so.1"
GIB = 2**30


def build(directory: Path | None = None) -> Path:
    """Compile the library once for each text of the source; return the directory it lies in."""
    text = SOURCE.read_bytes()
    name = f"gpulease-nvml-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:12]}"
    found = directory or Path(tempfile.gettempdir()) / name
    found.mkdir(mode=0o700, exist_ok=True, parents=True)
    with (found / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found / LIBRARY).exists():
            words = ["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pthread"]
            made = found / "being-made"
            words += [f"-Wl,-soname,{LIBRARY}", "-o", str(made), str(SOURCE)]
            subprocess.run(words, check=True, capture_output=True)
            made.rename(found / LIBRARY)
    return found


@functools.cache
def load() -> None:
    """Load the stand-in into this process: ``pynvml`` finds it under the real one's name."""
    ctypes.CDLL(str(build() / LIBRARY), mode=ctypes.RTLD_GLOBAL)


class Driver:
    """What the stand-in answers: keys as the C file lists them.

    Args:
        path: the file; ``NVML_STAND_IN`` must name it.
        cards: how many GPUs, each as ``card`` describes it.
    """

    def __init__(self, path: Path, cards: int = 2, **changed: object) -> None:
        self.path = path
        self.keys: dict[str, str] = {"devices": str(cards)}
        for index in range(cards):
            self._describe(index)
        self.set(**changed)

    def set(self, mapping: Mapping[str, object] | None = None, **keys: object) -> None:
        """Change keys and write the file at once; ``None`` takes a key away.

        A key given by keyword has ``__`` for the dot and ``gpu0`` for 0: ``gpu0__use=40``.
        """
        for name, found in keys.items():
            self._put(name.replace("__", ".").removeprefix("gpu"), found)
        for name, found in (mapping or {}).items():
            self._put(name, found)
        self._write()

    def fail(self, function: str, code: int | None, card: int | None = None) -> None:
        """Let a function (``*``: all) fail with an NVML error code; ``None``: not any more."""
        where = "" if card is None else f"{card}."
        self.set({f"{where}error.{function}": code})

    def event(self, kind: int, data: int = 0, card: int = 0) -> None:
        """Raise an event, such as an Xid (kind 8, data its number)."""
        before = self.keys.get("events", "")
        number = len(before.split(",")) + 1 if before else 1
        self.set(events=f"{before},{number}:{kind}:{data}:{card}".lstrip(","))

    def environment(self) -> dict[str, str]:
        """Return what another process needs to load the stand-in."""
        return {"LD_LIBRARY_PATH": str(build()), "NVML_STAND_IN": str(self.path)}

    def _describe(self, index: int) -> None:
        card = {
            "uuid": f"GPU-0000000{index}-1111-2222-3333-444444444444",
            "name": "NVIDIA Test",
            "memory_total": 16 * GIB,
            "memory_used": GIB,
            "major": 9,
            "minor": 0,
            "ecc": 1,
            "ecc_double": 0,
            "remapped": "0:0:0:0",
            "power": 60_000,
            "use": 0,
            "process_use": "",
        }
        self.keys.update({f"{index}.{name}": str(found) for name, found in card.items()})

    def _put(self, name: str, found: object) -> None:
        if found is None:
            self.keys.pop(name, None)
        else:
            self.keys[name] = str(found)

    def _write(self) -> None:
        """Replace the file as a whole: a reader sees the old or the new one."""
        made = self.path.with_suffix(".new")
        lines = "".join(f"{name}={found}\n" for name, found in self.keys.items())
        made.write_bytes(lines.encode(errors="surrogateescape"))  # "\udcff" is the byte 255
        made.replace(self.path)
