"""Units: objects that are referred to by id and never walked through.

Owns what a class, function, cell, foreign globals dictionary, ``object()`` sentinel or pinned
container consists of: a *skeleton* (what it takes to make an empty one) and a *content* (what is
put into it, also into the one that is there already).  It knows nothing of the wire or of names.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
import weakref
from contextlib import suppress
from typing import Any

from gpulease.sides.looks import is_a
from gpulease.sides.module_files import module_digest
from gpulease.sides.names.analysis import code_use
from gpulease.transfer.registry import GLOBALS_SLOT, Registry
from gpulease.transfer.values.stays import leaves
from gpulease.transfer_next import cloudpickle_names, locks, stayed
from gpulease.transfer_next.files import is_closed_file
from gpulease.transfer_next.refuse import RefusedError, is_dead

from . import arrays_in_place, classes, containers, enums, finalizers
from .containers import fill_dict

_EMPTY = object()
#: Flags of types: made while the interpreter runs, not to be changed, and open to subclasses.
_HEAP, _FIXED, _BASE = 1 << 9, 1 << 8, 1 << 10


def is_unit(obj: Any, cache: dict[int, bool] | None = None) -> bool:
    """Say whether ``obj`` travels as a unit of its own (a class or function without a module)."""
    if type(obj) is object:
        return True
    if not is_a(obj, type | types.FunctionType):
        return False
    if cache is not None and (known := cache.get(id(obj))) is not None:
        return known
    answer = not cloudpickle_names.by_reference(obj) and not is_interpreters(obj)
    if cache is not None:
        cache[id(obj)] = answer
    return answer


def is_interpreters(obj: Any) -> bool:
    """Say whether ``obj`` is a class that no Python code made."""
    # Of those that are made while the interpreter runs, only compiled code's cannot be changed, or
    # take no subclass: the scanner of a JSONDecoder has no name by which anyone would know it.
    return is_a(obj, type) and (obj.__flags__ & (_HEAP | _FIXED | _BASE)) != _HEAP | _BASE


def _cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


class UnitBook:
    """Takes units apart and puts them together for one side, whose user namespace is ``ns``."""

    def __init__(self, ns: dict[str, Any], registry: Registry) -> None:
        self.ns = ns
        self.registry = registry

    # ---- taking apart

    def skeleton(self, obj: Any) -> tuple[Any, ...]:  # noqa: C901, PLR0911 - one line a kind
        """Return what it takes to make an empty ``obj``; pickled with references to units."""
        if type(obj) is stayed.Stayed:
            return ("stayed", *stayed.shell_of(obj))
        # A file that the look itself closed: an image is read once it is asked for.
        closed = "a closed file" if is_closed_file(obj) else None
        if (kind := leaves.leaf_kind(obj) or closed) is not None:
            if locks.is_shared(obj):
                raise RefusedError(kind, obj)
            return ("stayed", kind, stayed.class_of(obj), False)
        if isinstance(obj, types.FunctionType):
            self._refuse_unsteady(obj)
            cells = tuple(self.registry.held_oid(obj, i) for i in range(len(obj.__closure__ or ())))
            return ("function", obj.__code__, self._globals_ref(obj), cells)
        if isinstance(obj, enum.EnumMeta):
            return ("enum", *enums.shell_of(obj))
        if isinstance(obj, type):
            return ("class", *classes.shell_of(obj))
        if isinstance(obj, types.CellType):
            return ("cell",)
        if type(obj) is object:
            return ("object",)
        if locks.may_be(type(obj)):
            locks.share(obj)
            return ("free", *locks.shell_of(obj))
        if type(obj) in (list, dict, set, bytearray):
            return (type(obj).__name__,)
        if arrays_in_place.is_array(obj):
            return ("array", *arrays_in_place.shell_of(obj))
        if containers.is_container(obj):
            return ("container", *containers.shell_of(obj))
        return ("instance", type(obj))

    def content(  # noqa: C901, PLR0911, PLR0912 - one line a kind
        self, obj: Any, used: set[str] | None = None
    ) -> Any:
        """Return what is in ``obj``; ``used`` bounds a foreign globals dictionary."""
        if type(obj) is stayed.Stayed:
            return stayed.content_of(stayed.leaf_of(obj).uses)
        if leaves.leaf_kind(obj) is not None or is_closed_file(obj):
            return stayed.content_of(used or ())
        if isinstance(obj, types.FunctionType):
            return {name: getattr(obj, name) for name in _FUNCTION_PARTS} | {
                "__dict__": dict(obj.__dict__)
            }
        if isinstance(obj, enum.EnumMeta):
            return enums.content_of(obj)
        if isinstance(obj, type):
            return classes.content_of(obj)
        if isinstance(obj, types.CellType):
            value = _cell_contents(obj)
            return (False, None) if value is _EMPTY else (True, value)
        if type(obj) is dict:
            if used is None:
                return dict(obj)
            return ("globals", {k: obj[k] for k in sorted(used) if k in obj})
        if type(obj) in (list, set):
            return list(obj)
        if type(obj) is bytearray:
            return bytes(obj)
        if arrays_in_place.is_array(obj):
            return arrays_in_place.content_of(obj)
        if type(obj) is object or locks.may_be(type(obj)):
            return None
        if containers.is_container(obj):
            return containers.content_of(obj)
        return _instance_state(obj)

    def _globals_ref(self, function: types.FunctionType) -> tuple[str, str, str]:
        """Return the kind of a function's globals, which they are, and of what text a module is."""
        space = function.__globals__
        if space is self.ns:
            return ("ns", "", "")
        name = space.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and getattr(module, "__dict__", None) is space:
            return ("module", str(name), module_digest(str(name)))
        return ("unit", self.registry.held_oid(function, GLOBALS_SLOT), "")

    def held(self, obj: Any) -> set[str]:
        """Return the units that the skeleton of ``obj`` names: a function's cells and globals."""
        if not isinstance(obj, types.FunctionType):
            return set()
        found = {self.registry.held_oid(obj, i) for i in range(len(obj.__closure__ or ()))}
        foreign = self.foreign_globals(obj)
        return found if foreign is None else found | {foreign[0]}

    def foreign_globals(self, function: types.FunctionType) -> tuple[str, set[str]] | None:
        """Return oid and used names of a globals dictionary that is no module's and not ours."""
        kind, oid, _ = self._globals_ref(function)
        if kind != "unit":
            return None
        names = set(code_use(function.__code__).reads) | {"__name__", "__builtins__"}
        if isinstance(function.__globals__.get("__builtins__"), dict | types.ModuleType):
            # The interpreter's own builtins come by themselves; an emptied one is user content.
            builtins = function.__globals__["__builtins__"]
            size = len(builtins) if isinstance(builtins, dict) else 1
            if size:
                names.discard("__builtins__")
        return oid, names

    def _refuse_unsteady(self, function: types.FunctionType) -> None:
        """Refuse a function that may change the foreign dictionary it has as its globals.

        Such a dictionary travels with its function and is taken as constant afterwards; raises
        RefusedError where it need not be.
        """
        foreign = self.foreign_globals(function)
        if foreign is None or function.__code__.co_filename.startswith(_OF_ATTRS):
            return
        space = function.__globals__
        if code_use(function.__code__).writes or not all(
            _is_steady(name, space[name]) for name in foreign[1] if name in space
        ):
            raise RefusedError(
                "a function with changeable globals of its own (made by exec, or by %run: "
                "%run -i makes functions of the notebook)"
            )


#: The methods that attrs makes for a class have what the class was made with, for good.
_OF_ATTRS = "<attrs generated "
#: What generated functions (named tuples, lambdified formulas) have as globals, and nobody changes.
_STEADY = (type, types.BuiltinFunctionType, types.FunctionType, types.ModuleType)
_NOTHING = object()
#: Whose functions and constants lambdified formulas have among their globals.
_OF_FORMULAS = ("numpy", "math", "cmath", "scipy.special", "jax.numpy", "torch")


def _is_steady(name: str, value: Any) -> bool:
    if isinstance(value, _STEADY) or name.startswith("__"):
        return True
    modules = (sys.modules.get(module) for module in _OF_FORMULAS)
    found = [getattr(module, name, _NOTHING) for module in modules]
    # A constant that travelled is another object.
    return any(each is value or (type(value) is float and each == value) for each in found)


_FUNCTION_PARTS = (
    "__name__", "__qualname__", "__module__", "__doc__",
    "__defaults__", "__kwdefaults__", "__annotations__",
)  # fmt: skip


def apply_content(  # noqa: C901, PLR0912 - one line a kind
    obj: Any, content: Any, code: types.CodeType | None
) -> None:
    """Put ``content`` into ``obj``; runs no user code beyond what ``type.__setattr__`` runs."""
    if content is None:  # it is nothing but itself
        return
    if stayed.is_content(content):
        stayed.apply(obj, content)
    elif isinstance(obj, types.FunctionType):
        _apply_function(obj, content, code)
    elif isinstance(obj, enum.EnumMeta):
        enums.apply(obj, content)
    elif isinstance(obj, type):
        classes.apply(obj, content)
    elif isinstance(obj, types.CellType):
        _apply_cell(obj, content)
    elif type(obj) is dict and type(content) is tuple:
        obj.update(content[1])  # a foreign globals dictionary: only what functions use travels
    elif type(obj) is dict:
        fill_dict(obj, content)
    elif type(obj) is list or type(obj) is bytearray:
        obj[:] = content
    elif type(obj) is set:
        obj.intersection_update(content)
        obj.update(content)
    elif arrays_in_place.is_array(obj):
        arrays_in_place.fill(obj, content)
    elif containers.is_container(obj):
        containers.fill(obj, content)
    else:
        _apply_instance(obj, content)


def _apply_function(obj: types.FunctionType, content: Any, code: types.CodeType | None) -> None:
    for name in _FUNCTION_PARTS:
        setattr(obj, name, content[name])
    if code is not None and code != obj.__code__:
        obj.__code__ = code
    fill_dict(obj.__dict__, content["__dict__"])


def _apply_cell(obj: types.CellType, content: Any) -> None:
    full, value = content
    if full:
        obj.cell_contents = value
    elif _cell_contents(obj) is not _EMPTY:
        del obj.cell_contents


def own_space(obj: Any) -> Any:
    """Return the attribute dictionary of ``obj``, None if it has none.

    A ``partial`` gets its dictionary by being asked for it, and one that has a dictionary is
    wrapped by the next ``partial`` instead of merged into it: its reduction tells without asking.
    """
    if is_dead(obj):
        return None
    if isinstance(obj, functools.partial):
        reduced: Any = functools.partial.__reduce__(obj)  # a subclass may reduce in its own way
        return reduced[2][3]
    if type(obj) in weakref.ProxyTypes:
        return getattr(obj, "__dict__", None)
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:  # with slots only; its class's ``__getattr__`` is not asked
        return None


def makes_its_space(kind: type) -> bool:
    """Say whether the class answers by code of its own what ``__dict__`` is asked for."""
    own = (vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base))
    return any(type(each) is not types.GetSetDescriptorType for each in own)


def slots_of(obj: Any) -> dict[str, Any]:
    """Return what the slots of ``obj`` hold; of an empty one its ``__getattr__`` is not asked."""
    slots: dict[str, Any] = {}
    for cls in type(obj).__mro__:
        names = cls.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                mangled = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                with suppress(AttributeError):
                    slots[mangled] = object.__getattribute__(obj, mangled)
    return slots


def _instance_state(obj: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    space = own_space(obj)
    return (dict(space) if space is not None else None, slots_of(obj))


def _apply_instance(obj: Any, content: tuple[Any, ...]) -> None:
    space, slots, *given = content
    if given:  # something else has this very dictionary
        object.__setattr__(obj, "__dict__", space)
    elif space is not None:
        fill_dict(obj.__dict__, space)
    for name in slots_of(obj):
        if name not in slots:
            object.__delattr__(obj, name)
    for name, value in slots.items():
        object.__setattr__(obj, name, value)


def can_pin(obj: Any) -> bool:
    """Say whether the receiver may put a new content into its own ``obj`` (same identity)."""
    if type(obj) in (list, dict, set, bytearray):
        return True
    if arrays_in_place.is_array(obj):
        return arrays_in_place.can_be_filled(obj)
    if leaves.may_be(type(obj)) or type(obj) is functools.cached_property:  # never made anew
        return False
    if finalizers.is_finalizer(type(obj)):  # it has no content of its own
        return False
    return is_plain_instance(obj) or containers.is_container(obj)


def is_plain_instance(obj: Any, *, made_itself: bool = False) -> bool:
    """Say whether ``obj`` is nothing but its attributes: no own reduction, no builtin base.

    With ``made_itself`` its class may have a ``__new__``.
    """
    cls = type(obj)
    if is_interpreters(cls) or isinstance(obj, type | BaseException | enum.Enum):
        return False  # no Python code made its class
    own = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__",
           "__getnewargs_ex__")  # fmt: skip
    if any(name in base.__dict__ for base in cls.__mro__[:-1] for name in own):
        return False
    made_by: Any = cls.__new__
    return (made_itself or made_by is object.__new__) and all(
        base is object or not is_interpreters(base) for base in cls.__mro__
    )
