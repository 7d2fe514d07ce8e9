"""What is mirrored and what never is.

Some names are passed over, and sizes are bounded; people read which.  Both sides use the same
rules: home sends them.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: A student's own list of what shall stay away: one pattern a line, ``#`` for remarks.
IGNORE_FILE = ".gpuleaseignore"
#: Directories of the mirror's own, for what is on its way.
STAGING = ".gpulease-mirror-"
_PASSED_OVER = frozenset((".ipynb_checkpoints", "__pycache__", "lost+found", ".nfs", ".snapshot"))
_IGNORE_BYTES = 64 * 1024
#: Where programs keep what they fetched or compiled: each machine has its own, and would fetch it
#: again.  Variables that name such a directory, and the usual ones below the home.
_CACHES = (
    "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE",
    "HF_XET_CACHE", "HF_ASSETS_CACHE", "TRANSFORMERS_CACHE", "SENTENCE_TRANSFORMERS_HOME",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
    "KERAS_HOME", "TFHUB_CACHE_DIR", "TFDS_DATA_DIR", "VLLM_CACHE_ROOT", "WANDB_CACHE_DIR",
    "MODELSCOPE_CACHE", "NUMBA_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "CUDA_CACHE_PATH",
    "PIP_CACHE_DIR", "UV_CACHE_DIR", "CUPY_CACHE_DIR",
)  # fmt: skip
_HOMES_CACHES = (
    ".cache", ".keras", ".torch", ".triton", ".nv", ".cupy", ".ollama", ".kagglehub",
    "tensorflow_datasets", "nltk_data", "scikit_learn_data",
)  # fmt: skip
_GIB = 2**30


@dataclass(frozen=True)
class MirrorLimits:
    """How much a mirror holds: bytes in all, bytes of one file, number of paths."""

    total: int = 2 * _GIB
    file: int = _GIB
    paths: int = 50_000

    @classmethod
    def of(cls, total: int) -> MirrorLimits:
        """Return the bounds of a mirror of so many bytes: one file takes at most half of it."""
        return cls(total=total, file=total // 2)


@dataclass(frozen=True)
class Rules:
    """What both sides pass over, and how much they look at.

    Attributes:
        bounds: how much the mirror holds.
        patterns: names and paths of the student's own choice.
        hidden: whether names at the top that begin with a dot are mirrored: not where the directory
            is the person's home, for these are settings and credentials of programs.
        caches: directories, by their paths from the top, that each side has for itself.
    """

    bounds: MirrorLimits = MirrorLimits()
    patterns: tuple[str, ...] = ()
    hidden: bool = True
    caches: tuple[str, ...] = ()

    def skips(self, path: str, name: str) -> bool:
        """Tell whether ``path``, whose last part is ``name``, is passed over."""
        if name in _PASSED_OVER or name.startswith(STAGING) or path in self.caches:
            return True
        if not self.hidden and path == name and name.startswith(".") and name != IGNORE_FILE:
            return True
        return any(
            fnmatch.fnmatchcase(path if "/" in pattern else name, pattern)
            for pattern in self.patterns
        )

    def to_json(self) -> dict[str, Any]:
        """Return the rules for the other side."""
        bounds = [self.bounds.total, self.bounds.file, self.bounds.paths]
        return {
            "bounds": bounds, "patterns": list(self.patterns), "hidden": self.hidden,
            "caches": list(self.caches),
        }  # fmt: skip

    @classmethod
    def from_json(cls, found: Mapping[str, Any], most: MirrorLimits) -> Rules:
        """Read what the other side said; nobody gets more than ``most``.

        Raises:
            ValueError: it is something else.
        """
        try:
            total, file, paths = (int(number) for number in found["bounds"])
            patterns = tuple(str(pattern) for pattern in found["patterns"])
            hidden = bool(found["hidden"])
            caches = tuple(str(path) for path in found["caches"])
        except (KeyError, TypeError) as error:
            raise ValueError("not the rules of a mirror") from error
        bounds = MirrorLimits(min(total, most.total), min(file, most.file), min(paths, most.paths))
        return cls(bounds, patterns, hidden, caches)


def rules_of(root: Path, bounds: MirrorLimits) -> Rules:
    """Return the rules of home's directory ``root``."""
    try:
        with (root / IGNORE_FILE).open("rb") as file:
            text = file.read(_IGNORE_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    found = caches(root, Path.home(), os.environ)
    return Rules(bounds, patterns(text.splitlines()), hidden=not _is_home(root), caches=found)


def caches(root: Path, home: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories below ``root`` that hold caches, by their paths from there."""
    named = [Path(environ[name]).expanduser() for name in _CACHES if environ.get(name)]
    usual = [home / name for name in _HOMES_CACHES]
    top = Path(os.path.realpath(root))
    found = {
        Path(os.path.realpath(path)).relative_to(top).as_posix()
        for path in (*named, *usual)
        if path.is_absolute() and Path(os.path.realpath(path)).is_relative_to(top)
    }
    return tuple(sorted(found - {"."}))


def patterns(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of an ignore file; a slash at the end or the start says nothing."""
    stripped = (line.strip() for line in lines)
    return tuple(line.strip("/") for line in stripped if line.strip("/") and line[0] != "#")


def refusal(root: Path) -> str:
    """Say why a directory is not mirrored at all; "" when it is."""
    real = Path(os.path.realpath(root))
    home = Path(os.path.realpath(Path.home()))
    if real == Path("/") or (real != home and real in home.parents):
        return f"{root} holds more than your own work"
    return ""


def _is_home(root: Path) -> bool:
    return os.path.realpath(root) == os.path.realpath(Path.home())
