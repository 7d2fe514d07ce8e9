"""What a name of the notebook is to a GPU: a library that uses one, a value of such, or neither.

It reads values and calls none of their code.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import types
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from gpulease.sides.looks import is_a

#: Libraries that compute on a GPU where there is one; by top-level module.
FRAMEWORKS = frozenset((
    "torch", "torchvision", "torchaudio", "torchtext", "torchmetrics", "torch_geometric",
    "timm", "lightning", "pytorch_lightning", "fastai", "jax", "jaxlib", "flax", "optax",
    "equinox", "haiku", "tensorflow", "keras", "tensorflow_probability", "tensorflow_hub",
    "cupy", "cupyx", "cudf", "cuml", "cugraph", "cuspatial", "dask_cuda", "dask_cudf", "rmm",
    "transformers", "diffusers", "accelerate", "peft", "trl", "bitsandbytes",
    "sentence_transformers", "ultralytics", "vllm", "triton", "pycuda", "warp", "numba.cuda",
))  # fmt: skip
#: How far into containers, attributes and called functions is looked.
_DEPTH = 4
_ITEMS = 8
#: What is called or looked into by name.
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


class Kind(Enum):
    """What a name is."""

    PLAIN = "plain"
    LIBRARY = "library"  # a module, or a function or class of one, or of the notebook's over one
    VALUE = "value"  # made by one: a tensor, a model
    HELPER = "helper"  # a function or method of the notebook's own that uses none by name
    AWAY = "away"  # its newest value is on the GPU only


class Kinds:
    """Answers for one namespace; ``away`` are the names that live on the GPU only."""

    def __init__(self, space: Mapping[str, Any], away: Collection[str] = ()) -> None:
        self._space = space
        self._away = frozenset(away)
        self._seen: set[int] = set()

    def of(self, name: str) -> tuple[Kind, str]:
        """Return what a name is, and the library that makes it so."""
        if name in self._away:
            return Kind.AWAY, ""
        if name not in self._space:
            return Kind.PLAIN, ""
        try:
            return self.of_value(self._space[name])
        except Exception:  # noqa: BLE001 - a value may answer as it likes when it is looked at
            return Kind.PLAIN, ""

    def of_value(self, value: Any) -> tuple[Kind, str]:
        """Return what a value is, and the library that makes it so."""
        self._seen = set()
        library = self._library(value, 0)
        if is_a(value, _CODE):
            if library:
                return Kind.LIBRARY, library
            own = is_a(value, types.FunctionType) and not _is_installed(value)
            return (Kind.HELPER if own else Kind.PLAIN), ""
        if library:
            return Kind.VALUE, library
        if is_a(value, types.MethodType) or type(value).__module__ == "__main__":
            return Kind.HELPER, ""
        return Kind.PLAIN, ""

    def _library(self, value: Any, depth: int) -> str:
        """Return the library that a value is of, reaches or uses; "" for none."""
        if depth > _DEPTH or id(value) in self._seen:
            return ""
        self._seen.add(id(value))
        if is_a(value, types.ModuleType):
            return framework(value.__name__) or self._of_own_module(value, depth)
        if is_a(value, type):
            return next((f for base in value.__mro__ if (f := framework(base.__module__))), "")
        if is_a(value, types.FunctionType):
            return framework(value.__module__) or self._of_function(value, depth)
        if is_a(value, types.BuiltinFunctionType | types.MethodType):
            owner = getattr(value, "__self__", None)
            return framework(value.__module__) or (
                self._library(owner, depth + 1) if owner is not None else ""
            )
        found = self._library(type(value), depth)
        return found or self._inside(value, depth)

    def _inside(self, value: Any, depth: int) -> str:
        inner: list[Any] = []
        if type(value) in (list, tuple, set, frozenset):
            inner = [v for _, v in zip(range(_ITEMS), value, strict=False)]
        elif type(value) is dict:
            inner = [v for _, v in zip(range(_ITEMS), list(value.values()), strict=False)]
        elif type(value).__module__ == "__main__":
            inner = list(vars(value).values())[:_ITEMS] if hasattr(value, "__dict__") else []
        return next((found for v in inner if (found := self._library(v, depth + 1))), "")

    def _of_function(self, function: types.FunctionType, depth: int) -> str:
        if _is_installed(function):
            return ""
        names = _names(function.__code__)
        space = function.__globals__
        return next(
            (f for n in names if n in space and (f := self._library(space[n], depth + 1))), ""
        )

    def _of_own_module(self, module: types.ModuleType, depth: int) -> str:
        """Return the framework that a module of the person's own imports."""
        file = getattr(module, "__file__", None)
        if not file or _is_installed_file(file):
            return ""
        found = [v for v in list(vars(module).values()) if is_a(v, types.ModuleType | type)]
        return next((f for v in found if (f := self._library(v, depth + 1))), "")


def framework(module: str | None) -> str:
    """Return the library that a module belongs to, "" for none that uses a GPU."""
    if not module:
        return ""
    if module == "numba.cuda" or module.startswith("numba.cuda."):
        return "numba.cuda"
    top = module.partition(".")[0]
    return top if top in FRAMEWORKS else ""


def is_installed(package: str) -> bool:
    """Say whether a package can be imported here."""
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except ValueError:  # a module of that name that nobody imported
        return True


def _names(code: types.CodeType) -> list[str]:
    inner = [n for c in code.co_consts if isinstance(c, types.CodeType) for n in _names(c)]
    return [*code.co_names, *inner]


def _is_installed(function: types.FunctionType) -> bool:
    if function.__module__ == "__main__":
        return False
    module = sys.modules.get(function.__module__ or "")
    file = getattr(module, "__file__", None)
    return file is not None and _is_installed_file(file)


def _is_installed_file(file: str) -> bool:
    places = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    path = Path(file)
    return "site-packages" in path.parts or any(path.is_relative_to(p) for p in places if p)
