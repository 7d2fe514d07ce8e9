"""The person's own modules: files beside the notebook, not installed.

Both sides import the same file.  Functions and classes of it are found by name, where what runs is
the same on both; what else the modules and their classes hold travels as variables do.
"""

from __future__ import annotations

import enum
import hashlib
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

from gpulease.sides import module_files
from gpulease.sides.hushed import import_quietly
from gpulease.sides.looks import ask
from gpulease.sides.state.own_modules import OwnModules

from .anatomy import content_of
from .classes import Undo

_SCALARS = frozenset((int, float, complex, bool, str, bytes, type(None)))
_FIXED = _SCALARS | {tuple, frozenset, types.CodeType, range, slice, types.FunctionType, type}
_WRAPPERS = (staticmethod, classmethod)
#: What a class has for its own sake.
_OF_CLASSES = (
    property, types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.MethodType,
    types.BuiltinFunctionType,
)  # fmt: skip
_GONE = object()


def is_own(name: Any) -> bool:
    """Say whether a module is the person's own."""
    return name != "__main__" and name in sys.modules and bool(module_files.module_digest(name))


def has_state(function: Any) -> bool:
    """Say whether a function of an own module keeps something from call to call."""
    if type(function) is not types.FunctionType or not is_own(function.__module__):
        return False
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if not (function.__closure__ or function.__dict__ or defaults):
        return False
    held = [*map(content_of, function.__closure__ or ()), *function.__dict__.values(), *defaults]
    return any(type(each) not in _FIXED for each in held) or bool(function.__dict__)


# ---- what runs


def name_of(obj: Any) -> tuple[str, str, dict[str, str]]:
    """Return what ``found`` takes to find an own module, or a function or class of it."""
    if isinstance(obj, types.ModuleType):
        return obj.__name__, "", _runs(obj)
    return obj.__module__, obj.__qualname__, _runs(obj)


def found(module: str, name: str, runs: dict[str, str]) -> Any:
    """Return an own module, or something of it; raises where it is another one here."""
    if module not in sys.modules:
        import_quietly(module)
    for look in range(2):
        obj = _at(sys.modules[module], name)
        here = {} if obj is _GONE else _runs(obj)
        # What a cell has put in place of a function, on one side, travels by itself.
        if here and all(here.get(name, digest) == digest for name, digest in runs.items()):
            return obj
        if not look:
            module_files.load_edited()  # where the person has IPython do so before each cell
    raise ChangedError(module)


class ChangedError(Exception):
    """The file of an own module, which it is made with, was changed since a side imported it."""

    def __str__(self) -> str:
        module = self.args[0]
        return (
            f"the module {module} is not the same on both sides: its file was changed since one of "
            f"them imported it. Run importlib.reload({module}) in a cell, or %gpu restart"
        )


def _runs(obj: Any) -> dict[str, str]:
    """Return digests of what a function runs, or of all that a class or module defines."""
    if isinstance(obj, types.FunctionType):
        return {"": _digest(obj.__code__)}
    is_module = isinstance(obj, types.ModuleType)
    module, way = (obj.__name__, "") if is_module else (obj.__module__, f"{obj.__qualname__}.")
    runs = {"": ""}
    for name, value in vars(obj).items():
        for part in parts_of(value):
            is_here = type(part) is types.FunctionType or part.__qualname__ == way + name
            if part.__module__ == module and is_here:
                inner = _runs(part)
                runs[name] = _hash([runs.get(name), sorted(inner.items())])
    return runs


def parts_of(value: Any) -> list[Any]:
    """Return the functions of an attribute, or the class that it is."""
    parts = (value.fget, value.fset, value.fdel) if type(value) is property else (value,)
    plain = (each.__func__ if isinstance(each, _WRAPPERS) else each for each in parts)
    return [each for each in plain if issubclass(type(each), types.FunctionType | type)]


@cache
def _digest(code: types.CodeType) -> str:
    consts = [
        _digest(each) if isinstance(each, types.CodeType)
        else sorted(map(repr, each)) if isinstance(each, frozenset) else repr(each)
        for each in code.co_consts
    ]  # fmt: skip
    return _hash([code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, consts])


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


# ---- what modules hold


class OwnRoots:
    """What own modules and their classes hold, by root: ``m:shapes`` and ``m:shapes:made``.

    The first one has all that cannot change where it is, and the names of the rest.
    """

    def __init__(self) -> None:
        self._modules = OwnModules()
        self._times: dict[str, int] = {}

    def names(self, namespace: Mapping[str, Any]) -> list[str]:
        """Return the modules that the notebook has to do with."""
        self._modules.notice(namespace)
        return self._modules.names()

    def values(self, names: Collection[str]) -> dict[str, Any]:
        """Return what these modules hold, by root."""
        roots: dict[str, Any] = {}
        for name in names:
            held = dict(_held(sys.modules[name]))
            plain = {path: value for path, value in held.items() if type(value) in _SCALARS}
            rest = {path: value for path, value in held.items() if path not in plain}
            if held:
                roots["m:" + name] = plain, sorted(rest)
            roots |= {f"m:{name}:{path}": value for path, value in rest.items()}
        return roots

    def reloaded(self, names: Collection[str]) -> set[str]:
        """Return the modules that were loaded more often than at the last call."""
        now = {name: module_files.times_loaded(name) for name in names}
        new = {name for name, times in now.items() if times != self._times.get(name, times)}
        self._times = now
        return new


def loads(names: Collection[str]) -> dict[str, tuple[str, int]]:
    """Return of each module the digest of its file and how often it was loaded."""
    found = module_files.reloaded(names)
    return {name: found.get(name, ("", 1)) for name in names}


def catch_up(there: Mapping[str, tuple[str, int]]) -> None:
    """Import and reload what the other side has."""
    for name, (digest, times) in there.items():
        if times > 1:
            module_files.catch_up(name, digest, times)
        if name not in sys.modules:
            with suppress(Exception):  # the refusal of what uses it says why
                import_quietly(name)


def held() -> Iterator[Any]:
    """Yield what modules hold, for a count of references."""
    for name in module_files.own_modules():
        yield from vars(sys.modules[name]).values()
        yield from (value for _, value in _held(sys.modules[name], classes_only=True))


def _held(module: types.ModuleType, *, classes_only: bool = False) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(module).items()):
        if name.startswith("__"):
            continue
        if not classes_only and _is_data(value, module.__name__):
            yield name, value
        if _is_class_of(module, value) and value.__qualname__ == name:
            yield from _of_class(module, name, value)


def _of_class(module: types.ModuleType, path: str, cls: Any) -> Iterator[tuple[str, Any]]:
    if issubclass(type(cls), enum.EnumMeta):
        return
    for name, value in list(vars(cls).items()):
        if name.startswith("__") or name == "_abc_impl" or isinstance(value, _OF_CLASSES):
            continue
        if _is_class_of(module, value):
            yield from _of_class(module, f"{path}.{name}", value)
        elif _is_data(value, module.__name__) and not hasattr(type(value), "__set__"):
            yield f"{path}.{name}", value


def _is_class_of(module: types.ModuleType, value: Any) -> bool:
    return issubclass(type(value), type) and ask(value, "__module__") == module.__name__


def _is_data(value: Any, module: str) -> bool:
    """Say whether this is not what the file defines or imports."""
    if isinstance(value, _WRAPPERS):
        value = value.__func__
    kind = type(value)
    if kind is types.FunctionType:
        # Of the file's own text, or of an installed library: both sides have it.
        return value.__module__ == "__main__" or has_state(value) or _is_lambda(value, module)
    if issubclass(kind, type):
        return bool(ask(value, "__module__") == "__main__")
    return not issubclass(kind, types.ModuleType | types.BuiltinFunctionType)


def _is_lambda(value: Any, module: str) -> bool:
    """Say whether a function is not found by its own name in the module that has it."""
    there = sys.modules.get(value.__module__)
    return value.__module__ == module and _at(there, value.__qualname__) is not value


def put(values: Mapping[str, Any], undo: Undo) -> None:
    """Let modules have what came, and nothing that is no more."""
    for root, value in values.items():
        _, name, *path = root.split(":")
        module = sys.modules.get(name)
        if module is None:
            continue
        if path:
            _set(module, path[0], value, undo)
            continue
        plain, rest = value
        for gone in dict(_held(module)).keys() - plain.keys() - set(rest):
            _set(module, gone, _GONE, undo)
        for path_, each in plain.items():
            _set(module, path_, each, undo)


def _set(module: types.ModuleType, path: str, value: Any, undo: Undo) -> None:
    way, _, name = path.rpartition(".")
    owner = _at(module, way) if way else module
    if owner is _GONE:
        return
    before = vars(owner).get(name, _GONE)
    if before is not value:
        undo.add(partial(_write, owner, name, before))
        _write(owner, name, value)


def _write(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        if value is not _GONE:
            type.__setattr__(owner, name, value)
        elif name in vars(owner):
            type.__delattr__(owner, name)
    elif value is not _GONE:
        vars(owner)[name] = value
    else:
        vars(owner).pop(name, None)


def _at(owner: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        space = getattr(owner, "__dict__", {})
        if part not in space:
            return _GONE
        owner = space[part]
    return owner
