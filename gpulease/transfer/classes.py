"""Classes of the notebook: one object on each side, whose attributes are set and deleted.

A class is made once, empty (its *shell*), without the code that runs when a class statement does;
what is in it travels as a root of its own.  Members of enumerations are made with the shell and
are as lasting as the class.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import logging
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from cloudpickle import cloudpickle as _cp

from gpulease.sides.looks import ask, is_a

from . import anatomy, private, ways
from .refuse import RefusedError

log = logging.getLogger(__name__)
_SKIPPED = frozenset((
    "__dict__", "__weakref__", "__slots__", "__slotnames__", "_abc_impl", "__module__",
    "__qualname__", *private.ENUM_MAPS,
))  # fmt: skip
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_PLACES = {"__dict__", "__weakref__"}
_PARAMETERS = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)
_METHODS = (types.FunctionType, staticmethod, classmethod, property)


def shell_of(cls: Any) -> tuple[Any, ...]:
    """Return what ``make_shell`` needs: metaclass, name, bases, slots, members."""
    space = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    if "__slots__" in vars(cls):
        slots = vars(cls)["__slots__"]
        space["__slots__"] = (slots,) if isinstance(slots, str) else tuple(slots)
    # What the metaclass answers for by a property can be put into a class when it is made only.
    space |= {name: value for name, value in vars(cls).items() if _is_shadowed(cls, name)}
    parameters = vars(cls).get("__parameters__")
    if type(parameters) is tuple and all(type(each) in _PARAMETERS for each in parameters):
        space["__parameters__"] = tuple(type(each) for each in parameters)
    members = None
    if isinstance(cls, enum.EnumMeta):
        made_from = anatomy.BUILTINS[_under(cls)].made_from
        found: Mapping[str, Any] = cls.__members__
        members = [(name, each._name_, made_from(each)) for name, each in found.items()]
    return type(cls), cls.__name__, cls.__bases__, space, members


def _under(cls: Any) -> type:
    base = anatomy.builtin_under(cls)
    assert base is not None, cls
    return base


def make_shell(meta: Any, name: str, bases: tuple[Any, ...], space: Any, members: Any) -> Any:
    """Make an empty class; no code of its metaclass or its bases runs."""
    if "__parameters__" in space:
        # Other classes may hold ``A[int]``, which asks for as many parameters of these kinds.
        space |= {"__parameters__": tuple(kind("T") for kind in space["__parameters__"])}
    made = _made_quietly(meta, name, bases, space)
    if members is not None:
        private.set_members(made, _new_members(made, members))
    return made


def _made_quietly(meta: Any, name: str, bases: tuple[Any, ...], space: Any) -> Any:
    """Make a class of which no ``__init_subclass__`` of its bases hears."""
    maker: Any = abc.ABCMeta if issubclass(meta, abc.ABCMeta) else type
    if not any("__init_subclass__" in vars(base) for each in bases for base in each.__mro__[:-1]):
        return maker.__new__(meta, name, bases, dict(space))
    made = maker.__new__(meta, name, (_shield_for(bases), *bases), dict(space))
    try:
        type.__setattr__(made, "__bases__", bases)
    except TypeError:
        raise RefusedError(
            f"the class {name}, whose bases want to hear of their subclasses"
        ) from None
    return made


def _shield_for(bases: tuple[Any, ...]) -> Any:
    """Make a class that goes first among a new class's bases, and keeps the news of it to itself.

    Bases can be replaced by such of one layout.  The first base gives it, unless another one has
    fields; of a class without fields it is where ``__dict__`` and ``__weakref__`` are.
    """
    space: dict[str, Any] = {"__init_subclass__": _hear_nothing, "__slots__": ()}
    model = bases[0]
    while model is not object and not _PLACES & vars(model).keys():
        model = model.__base__
    if model is object or any(_has_fields(each) for base in bases for each in base.__mro__):
        return type.__new__(type, "_Shield", (), space)
    space["__slots__"] = tuple(_PLACES & vars(model).keys())
    return _made_quietly(type(model.__base__), "_Shield", (model.__base__,), space)


def _has_fields(cls: Any) -> bool:
    if anatomy.made_by_python(cls):
        return any(type(value) is types.MemberDescriptorType for value in vars(cls).values())
    return bool(cls.__basicsize__ != object.__basicsize__ or cls.__itemsize__)


def _hear_nothing(_cls: type, **_: Any) -> None:
    pass


def _new_members(cls: Any, members: list[tuple[str, str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, own_name, made_from in members:
        if own_name not in made:
            made[own_name] = anatomy.put_together(cls, made_from)
        made.setdefault(name, made[own_name])
    return {name: made[name] for name, _, _ in members}


def _is_shadowed(cls: Any, name: str) -> bool:
    metas = (base for base in type(cls).__mro__ if anatomy.made_by_python(base))
    found = next((vars(base)[name] for base in metas if name in vars(base)), None)
    return found is not None and hasattr(type(found), "__set__")


def _own(cls: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in _SKIPPED and type(value) not in _SLOTS and not _is_shadowed(cls, name)
    }


def parts_of(cls: Any) -> tuple[Any, Any]:
    """Return methods and the rest: loading the rest may need the methods."""
    own = _own(cls)
    methods = {name: value for name, value in own.items() if isinstance(value, _METHODS)}
    rest = {name: value for name, value in own.items() if name not in methods}
    registered = private.registered(cls) if isinstance(cls, abc.ABCMeta) else []
    with_modules = abstract_classes_of(cls)
    members = _members_of(cls) if isinstance(cls, enum.EnumMeta) else None
    # The metaclass is named so that it comes along.
    return (list(vars(cls)), methods, cls.__bases__, type(cls)), (
        rest,
        registered,
        with_modules,
        members,
        ways.entries_of(cls),
    )


def _members_of(cls: Any) -> tuple[Any, Any]:
    """Return the attributes of each member, and which values are found to be which."""
    spaces = {
        name: (anatomy.space_of(member), anatomy.slots_of(member) or None)
        for name, member in cls.__members__.items()
        if member._name_ == name
    }
    by_value = [
        (value, member._name_)
        for value, member in private.by_value(cls).items()
        if cls.__members__.get(member._name_) is member
    ]
    return spaces, by_value


class Undo:
    """How to take back what was written, the latest first."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        """Note how to take back what comes next."""
        self._steps.append(step)

    def run(self) -> None:
        """Take everything back, whatever one of the steps raises."""
        while self._steps:
            try:
                self._steps.pop()()
            except Exception:
                # What a class does when it is written to is its own; the other steps are still due.
                log.exception("a step of a commit that failed could not be taken back")


def _set(cls: Any, name: str, value: Any, undo: Undo) -> None:
    missing = object()
    before = vars(cls).get(name, missing)
    if before is value:
        return
    if before is missing:
        undo.add(lambda: type.__delattr__(cls, name))
    else:
        undo.add(lambda: type.__setattr__(cls, name, before))
    type.__setattr__(cls, name, value)


def _delete(cls: Any, name: str, undo: Undo) -> None:
    before = vars(cls)[name]
    undo.add(lambda: type.__setattr__(cls, name, before))
    type.__delattr__(cls, name)


def apply_methods(cls: Any, part: tuple[Any, ...], undo: Undo) -> None:
    """Set the methods of a class, and delete what it has no more."""
    names, methods, bases, _ = part
    for name in [name for name in _own(cls) if name not in names]:
        _delete(cls, name, undo)
    for name, value in methods.items():
        _set(cls, name, value, undo)
        if type(value) is property and getattr(value.fget, "__name__", None) == name:
            value.__set_name__(cls, name)  # type: ignore[attr-defined] # its errors say the name
    if cls.__bases__ != bases:
        before = cls.__bases__
        undo.add(lambda: type.__setattr__(cls, "__bases__", before))
        type.__setattr__(cls, "__bases__", bases)


def apply_rest(cls: Any, part: tuple[Any, ...], undo: Undo) -> None:
    """Set the other attributes of a class."""
    rest, registered, with_modules, members, entries = part
    for name, value in rest.items():
        _set(cls, name, value, undo)
    for each in registered:
        abc.ABCMeta.register(cls, each)
    register(cls, with_modules)
    if members is not None:
        _apply_members(cls, members, undo)
    for enter_class, entry in entries:
        enter_class(cls, entry)


def _apply_members(cls: Any, part: tuple[Any, Any], undo: Undo) -> None:
    spaces, by_value = part
    known = cls.__members__
    found = {value: known[name] for value, name in by_value}
    for value, member in private.by_value(cls).items():
        if member._name_ not in known:  # flags without a name, which somebody may have
            found.setdefault(value, member)
    _set(cls, "_value2member_map_", found, undo)
    for name, (space, slots) in spaces.items():
        member = known[name]
        was = anatomy.space_of(member)
        before = None if was is None else dict(was)
        undo.add(partial(_fill, member, before, anatomy.slots_of(member) or None))
        _fill(member, space, slots)


def _fill(member: Any, space: Any, slots: Any) -> None:
    own = anatomy.space_of(member)
    if own is not None and space is not None and own is not space:
        own.clear()
        own.update(space)
    for name, value in (slots or {}).items():
        object.__setattr__(member, name, value)


_book: weakref.WeakKeyDictionary[type, list[type]] = weakref.WeakKeyDictionary()
#: What Python counts registrations by, at the last look: none is ever taken back.
_seen: list[object] = []


def abstract_classes_of(cls: type) -> list[type]:
    """Return the abstract classes of modules with which ``cls`` is registered, in a fixed order."""
    if abc.get_cache_token() not in _seen:
        _look()
    return _book.get(cls, [])


def register(cls: type, abstract: Iterable[Any]) -> None:
    """Register ``cls`` with these where it is not."""
    have = abstract_classes_of(cls)
    for each in abstract:
        if each not in have:
            abc.ABCMeta.register(each, cls)


def _look() -> None:
    """Ask all abstract classes that there are: some 20 ms with many libraries imported."""
    token = abc.get_cache_token()
    found: weakref.WeakKeyDictionary[type, list[type]] = weakref.WeakKeyDictionary()
    for each in _abstract_classes():
        registered = abc._get_dump(each)[0]  # type: ignore[attr-defined]  # noqa: SLF001
        classes = [cls for ref in registered if (cls := ref()) is not None and _may_travel(cls)]
        # A library's module may warn of a name that is asked for: only where it matters.
        if classes and is_named(each):
            for cls in classes:
                found.setdefault(cls, []).append(each)
    _book.clear()
    for cls, abstract in found.items():
        _book[cls] = sorted(abstract, key=lambda each: (each.__module__, each.__qualname__))
    _seen[:] = [token]


def _may_travel(cls: type) -> bool:
    """Say whether a class may be one that no module has by name."""
    return ask(cls, "__module__") == "__main__" or "<" in (ask(cls, "__qualname__") or "")


def _abstract_classes() -> list[Any]:
    seen: dict[int, type] = {}  # by id: a metaclass may compare in a way of its own, or warn
    queue: list[type] = [object]
    while queue:
        below: list[type] = type.__subclasses__(queue.pop())
        fresh = {id(cls): cls for cls in below if id(cls) not in seen}
        seen |= fresh
        queue += fresh.values()
    return [cls for cls in seen.values() if is_a(cls, abc.ABCMeta)]


#: What a notebook makes by these has a name and an identity, and Python pickles it by name alone.
#: What a ``type`` statement makes came with 3.12.
TYPE_VARIABLES: tuple[type, ...] = (
    typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple,
    *([vars(typing)["TypeAliasType"]] if "TypeAliasType" in vars(typing) else []),
)  # fmt: skip
_GIVEN = (
    "bound", "covariant", "contravariant", "infer_variance", "default", "constraints",
    "value", "type_params",
)  # fmt: skip


def type_variable_of(obj: Any) -> tuple[str, str, dict[str, Any]]:
    """Return what ``make_type_variable`` needs: kind, name, and what it was given."""
    names = {each: f"__{each}__" for each in _GIVEN}
    given = {each: getattr(obj, name) for each, name in names.items() if hasattr(obj, name)}
    if "default" in given and not obj.has_default():
        del given["default"]
    if given.get("constraints"):
        del given["bound"]  # which they exclude
    if "value" in given and _mentions(given["value"], obj):
        raise RefusedError("a type that is named in its own definition", obj)
    return type(obj).__name__, obj.__name__, given


def _mentions(kind: Any, alias: Any) -> bool:
    """Say whether a type is made of ``alias``, which must be there before itself then."""
    seen, queue = set(), [kind]
    while queue:
        each = queue.pop()
        if each is alias:
            return True
        if id(each) not in seen:
            seen.add(id(each))
            queue += [*typing.get_args(each), getattr(each, "__value__", None)]
    return False


def make_type_variable(kind: str, name: str, given: dict[str, Any]) -> Any:
    """Make a type variable or an alias of types."""
    rest = {key: value for key, value in given.items() if key != "constraints"}
    made = getattr(typing, kind)(name, *given.get("constraints", ()), **rest)
    with contextlib.suppress(AttributeError):  # an alias has it for good, by who makes it
        made.__module__ = "__main__"
    return made


def by_reference(obj: Any) -> bool:
    """Say whether a class, function or module is found again by a name."""
    return bool(_cp._should_pickle_by_reference(obj)) or bool(alias(obj))  # noqa: SLF001


def alias(kind: Any) -> tuple[types.ModuleType, str] | None:
    """Return where an installed module has a class, where the class's own words lead nowhere.

    ``jax.Array`` is by its own account ``jaxlib._jax.Array`` of the module ``jax``, ``np.recarray``
    of the module ``numpy.rec``, which nobody may have imported.
    """
    own = getattr(kind, "__module__", None)
    if not isinstance(kind, type) or not isinstance(own, str) or own == "__main__":
        return None
    where, name = own, kind.__qualname__.rpartition(".")[2]
    while where and where not in sys.modules:
        where = where.rpartition(".")[0]
    if not where or (where == own and "." not in kind.__qualname__):
        return None
    module = sys.modules[where]
    return (module, name) if getattr(module, name, None) is kind else None


def is_named(kind: Any) -> bool:
    """Say whether a class is found again by its name."""
    return bool(by_reference(kind)) or kind in _cp._BUILTIN_TYPE_NAMES  # noqa: SLF001
