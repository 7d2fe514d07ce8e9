"""How one object is taken apart: by its exact type first, then by its class, then as Python says.

The pickler of C meets lists, dictionaries, tuples and texts by itself.  Everything else asks
``reducer_override`` once.  Nothing here knows components.
"""

from __future__ import annotations

import abc
import enum
import functools
import io
import operator
import pickle
import sys
import threading
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import cloudpickle

from gpulease.sides import caches, process_objects
from gpulease.sides.libraries import library, package_of
from gpulease.sides.names.analysis import code_use

from . import (
    anatomy,
    faces,
    leaves,
    own,
    pieces,
    private,
    pyplot,
    rebuild,
    unpickled,
    valueless,
    ways,
    weak,
)
from . import stayed as stayed_kind
from .by_class import (
    found_elsewhere,
    is_copy,
    is_loose,
    is_the_persons,
    of_rust,
    takes_raw,
    travels_by_value,
    with_noted,
)
from .classes import TYPE_VARIABLES, type_variable_of
from .memory import (
    InFrame,
    Whole,
    reduce_array,
    reduce_in_frame,
    reduce_row,
    reduce_whole,
    shows_memory,
)
from .met import Met
from .refuse import RefusedError, kind_that_stays, refused_by_type, refused_itself

_UNKNOWN: Any = object()
_LOCKS = {type(threading.Lock()): "Lock", type(threading.RLock()): "RLock"}


def _bare(kind: type) -> ways.Reduce:
    """Return how instances are reduced that are their attributes: most objects are."""
    made, fill, space_of = (kind,), rebuild.fill_bare, anatomy.way_to_space(kind).__get__
    return lambda _pickler, obj: (rebuild.bare, made, space_of(obj), None, None, fill)


class StandsIn:
    """Is packed as what stands for a value that stays."""

    def __init__(self, value: Any) -> None:
        self.value = value


class CopiedSpace:
    """Is packed for a copy of the notebook's namespace: of that travels what functions read."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Packs roots; its memo says which objects it met."""

    def __init__(self, file: io.BytesIO, buffers: list[Any], met: Met) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.met = met
        self.kinds = met.ways
        if not self.kinds:
            self.kinds.update(KINDS)
        #: Ids of dictionaries that belong to an object for good -> that object.
        self.kept_spaces: dict[int, Any] = {}
        #: Those that are known to have another name, too.
        self.spaces: dict[int, Any] = {}
        #: By ``id`` of a copy of the namespace, what is packed for it.
        self.copied_spaces: dict[int, CopiedSpace] = {}
        #: By id, what has memory that travels in pieces.
        self.large: dict[str, Any] = {}

    def dump(self, obj: Any) -> None:
        """Write an object; cloudpickle's would raise another error where it is too deep."""
        pickle.Pickler.dump(self, obj)

    def reducer_override(self, obj: Any) -> Any:
        """Reduce one object."""
        kind = type(obj)
        way = self.kinds.get(kind, _UNKNOWN)
        if way is _UNKNOWN:
            way = Pickler.stood if issubclass(kind, stayed_kind.Stayed) else ways.of(kind)
            if self.met.structure_of is not None:
                way = valueless.way(kind, way)
            self.kinds[kind] = way
        return self.as_usual(obj, kind, way)

    def as_usual(self, obj: Any, kind: type, way: ways.Reduce | None) -> Any:
        """Reduce one object in the way of its class, if that has one, or by what it is."""
        if way is not None:
            return way(self, obj)
        if self.is_raw(kind):
            if travels_by_value(kind) and anatomy.is_bare(kind):
                way = self.kinds[kind] = _bare(kind)
                return way(self, obj)
            return self._raw(obj, kind)
        if issubclass(kind, type):  # what stands for a class says that it is one
            return self.class_(obj)
        return self._other(obj, kind)

    def is_raw(self, kind: type) -> bool:
        """Say whether every instance of a class is its attributes and the builtin under it."""
        raw = self.met.raw.get(kind)
        if raw is None:
            own = issubclass(kind, type) or ways.of(kind) is not None
            raw = self.met.raw[kind] = not own and self._is_plainly_raw(kind)
        return raw

    def _is_plainly_raw(self, kind: type) -> bool:
        """Say whether every instance of a class is taken raw, without another look."""
        if kind in self.dispatch_table or issubclass(kind, enum.Enum | io.IOBase):
            return False
        if shows_memory(kind) or weak.is_weak(kind):
            return False
        np = library("numpy")
        if np is not None and issubclass(kind, np.ndarray | np.generic):
            return False
        return not leaves.may_be(kind) and kind_that_stays(kind) is None and takes_raw(kind)

    def _raw(self, obj: Any, kind: type) -> Any:
        if not travels_by_value(kind):
            if (found := self.met.constant(obj)) is not None:
                return rebuild.constant, found
            if kind.__name__ == "cached_property":
                return self._other(obj, kind)
        return self.taken_apart(obj)

    def note_space(self, obj: Any) -> None:
        """Note the dictionary of attributes of an object that cannot be given another one."""
        if anatomy.keeps_its_space(obj):
            self.kept_spaces[id(anatomy.space_of(obj))] = obj

    def taken_apart(self, obj: Any) -> Any:
        """Reduce an object to its attributes and the builtin under its class."""
        self.note_space(obj)
        made_from, state = anatomy.take_apart(obj)
        made = (type(obj), *made_from)
        return rebuild.instance, made, state, None, None, rebuild.fill_instance

    # ---- what the language makes

    def class_(self, obj: type) -> Any:
        """Reduce a class: the notebook's to its id, another to its name."""
        if travels_by_value(obj):
            return rebuild.class_of, (self.met.class_id(obj),)
        if own.is_own(obj.__module__):
            return own.found, own.name_of(obj)
        if issubclass(obj, stayed_kind.Stayed):
            raise RefusedError("the type of what stands for something", obj)
        name = getattr(sys.modules.get(obj.__module__), obj.__qualname__.partition(".")[0], None)
        if name is None and (found := found_elsewhere(obj)) is not None:
            return getattr, found
        if not anatomy.made_by_python(obj) and _lacks_a_name(obj):
            return self._unnamed(obj)
        return super().reducer_override(obj)

    def _unnamed(self, obj: type) -> Any:
        for name, value in vars(types).items():
            if value is obj:
                return rebuild.constant, ("types", name)
        if obj is type(None) or obj is type(...) or obj is type(NotImplemented):
            return super().reducer_override(obj)
        if (found := of_rust(obj)) is not None:
            return getattr, found
        raise RefusedError(f"the type {obj.__name__}, which has no name to be found by", obj)

    def module(self, obj: types.ModuleType) -> Any:
        """Reduce a module: the person's own has to be the same on both sides.

        One that no import finds (``types.ModuleType("m")``) is its attributes.
        """
        if not is_loose(obj):
            if own.is_own(obj.__name__):
                return own.found, own.name_of(obj)
            return super().reducer_override(obj)
        if (words := refused_itself(obj)) is not None:
            raise RefusedError(words, obj)
        self.note_space(obj)
        content = dict(vars(obj))
        return types.ModuleType.__new__, (types.ModuleType,), content, None, None, anatomy.set_space

    def function(self, obj: types.FunctionType) -> Any:
        """Reduce a function of the notebook, over the receiver's namespace."""
        if not travels_by_value(obj):
            if own.is_own(obj.__module__):
                return own.found, own.name_of(obj)
            return super().reducer_override(obj)
        space = self._space(obj)
        read = None
        if type(space) is CopiedSpace:  # all that the notebook had then is in there
            names = code_use(obj.__code__).reads & obj.__globals__.keys()
            read = {name: obj.__globals__[name] for name in sorted(names)}
        state = (rebuild.parts_of(obj), obj.__dict__, read)
        made = obj.__code__, obj.__closure__, space
        return rebuild.function, made, state, None, None, rebuild.fill_function

    def code(self, obj: types.CodeType) -> Any:
        """Reduce code with the name of its file, which cloudpickle leaves out from 3.1.3 on."""
        make, parts = self.dispatch_table[types.CodeType](obj)
        return rebuild.code, (make, parts, obj.co_filename)

    def _space(self, obj: types.FunctionType) -> Any:
        space = obj.__globals__
        if space is self.met.namespace:
            return None
        if is_copy(space, self.met.namespace):
            return self.copied_spaces.setdefault(id(space), CopiedSpace())
        name = space.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is None or getattr(module, "__dict__", None) is not space:
            return space
        return module if own.is_own(name) else name

    def cell(self, obj: types.CellType) -> Any:
        """Reduce a cell, which may hold what it belongs to."""
        try:
            content = obj.cell_contents
        except ValueError:
            return rebuild.cell, ()
        if type(content) is dict and (cls := self.met.class_spaces.get(id(content))) is not None:
            return rebuild.class_cell, (cls,)
        return rebuild.cell, (), (content,), None, None, rebuild.fill_cell

    def method(self, obj: types.MethodType) -> Any:
        """Reduce a bound method."""
        if leaves.leaf_kind(obj) is not None:
            return self.stays(obj)
        return types.MethodType, (obj.__func__, obj.__self__)

    def wrapped(self, obj: Any) -> Any:
        """Reduce a class or static method, whose attributes are of the time when it was made."""
        space, function = dict(vars(obj)), obj.__func__
        notes = space.get("__annotations__")
        if notes is getattr(function, "__annotations__", None) and not travels_by_value(function):
            space.pop("__annotations__", None)  # a module's function has them on both sides
        return rebuild.wrapped, (type(obj), function, space)

    def marker(self, obj: object) -> Any:
        """Reduce an ``object()``, which is nothing but itself."""
        return rebuild.marker, (self.met.others.id_of(obj),)

    def variable(self, obj: Any) -> Any:
        """Reduce a type variable or an alias of types that no module has."""
        module = obj.__module__
        if module != "__main__" and getattr(sys.modules.get(module), obj.__name__, None) is obj:
            return super().reducer_override(obj)
        parts = type_variable_of(obj)
        return rebuild.variable, (self.met.others.id_of(obj), *parts)

    def _dtype(self, obj: Any, make: Any) -> Any:
        """Reduce a data type: numpy has each of its own once, and pickles it as another one.

        ``np.asarray(x, float)`` is ``x`` for the one only.
        """
        if obj.isbuiltin == 1:
            return make, (obj.char,)
        if obj.fields is None:
            return super().reducer_override(obj)
        # Not to the dictionary that it keeps of its fields: else all that has a module's data type
        # (the trees of all forests, say) would share that.
        made, args, state = obj.__reduce__()
        return made, args, tuple(dict(part) if type(part) is dict else part for part in state)

    def new_type(self, obj: Any) -> Any:
        """Reduce what ``typing.NewType`` made: Python pickles it by its name alone."""
        if obj.__module__ != "__main__":
            return super().reducer_override(obj)
        return self.taken_apart(obj)

    def stood(self, obj: Any) -> Any:
        """Reduce what stands for an object of the other side."""
        leaf = stayed_kind.leaf_of(obj)
        return rebuild.stayed, (leaf.oid, leaf.kind, leaf.cls)

    def stays(self, obj: Any) -> Any:
        """Reduce an object that stays to what stands for it."""
        words = leaves.leaf_kind(obj) or type(obj).__name__
        oid = None
        if type(obj) is not types.MethodType and type(obj) is not types.BuiltinFunctionType:
            oid = self.met.stays.id_of(obj)
        else:  # each look at a method makes another one
            same = (each for each in self.met.stays.values() if _is_same_method(each, obj))
            oid = self.met.stays.id_of(next(same, obj))
        return rebuild.stayed, (oid, words, stayed_kind.class_of(obj))

    # ---- everything else

    def _other(self, obj: Any, kind: type) -> Any:  # noqa: C901, PLR0911, PLR0912 - a table
        if isinstance(obj, io.IOBase):
            if (name := leaves.standard_name(obj)) is not None:
                return leaves.standard_stream, (name,)
            if leaves.is_closed_file(obj):
                return leaves.reduce_closed(obj)
        if kind in weak.PROXIES or weak.is_weak(kind):
            return weak.reduce(obj)
        if kind in _LOCKS and leaves.leaf_kind(obj) is None:
            return rebuild.free_lock, (_LOCKS[kind],)
        if leaves.leaf_kind(obj) is not None:
            return self.stays(obj)
        of_kind = self.met.refused_kinds
        if kind not in of_kind:
            of_kind[kind] = refused_by_type(kind) or kind_that_stays(kind)
        if (words := refused_itself(obj) or of_kind[kind]) is not None:
            raise RefusedError(words, obj)
        if isinstance(obj, caches.LRU_CACHE) and (
            travels_by_value(obj) or own.is_own(obj.__wrapped__.__module__)
        ):
            return caches.reduce(obj)
        if isinstance(obj, enum.Enum):
            return self._member(obj, kind)
        if (one := process_objects.reduce(obj)) is not None:
            self.met.named[id(obj)] = obj
            return one
        if (found := unpickled.reduce(obj)) is not NotImplemented:
            return found
        if anatomy.made_by_python(kind) and (found := self.met.constant(obj)) is not None:
            return rebuild.constant, found
        np = library("numpy")
        if np is not None:
            if isinstance(obj, np.ndarray):
                return self._array(obj)
            if isinstance(obj, np.void):
                return reduce_row(self.met.memory, obj)
            if isinstance(obj, np.dtype):
                return self._dtype(obj, np.dtype)
        if kind.__module__ == "matplotlib.cbook" and kind.__name__ == "CallbackRegistry":
            return private.reduce_callbacks(obj)
        if issubclass(kind, getattr(sys.modules.get("matplotlib.figure"), "Figure", ())):
            return pyplot.reduce_figure(obj)
        if leaves.is_animated(obj):
            return self.stays(obj)
        if is_the_persons(kind) and takes_raw(kind):
            return self._raw(obj, kind)
        found = self._of_library(obj, kind)
        return found if kind in self.dispatch_table else with_noted(obj, found)

    def _of_library(self, obj: Any, kind: type) -> Any:
        if shows_memory(kind):
            found = faces.reduce(obj, self.met.memory.shown)
            if found is not NotImplemented:
                return found
            if package_of(kind) == "pandas":
                return faces.reduce_part(obj, self.met.memory.framed)
        is_compiled = library("numpy") is not None and not anatomy.made_by_python(kind)
        if not is_compiled or kind is operator.methodcaller or kind in self.dispatch_table:
            return NotImplemented
        return self._compiled(obj)

    def _compiled(self, obj: Any) -> Any:
        """Reduce an object of compiled code, whose own way may make arrays over its memory."""
        reduced = obj.__reduce_ex__(5)
        if type(reduced) is not tuple:  # it is found again by this name, as numpy's functions are
            self.met.named[id(obj)] = obj
            return reduced
        own_array = functools.partial(self._own_array, obj)
        return tuple(faces.replaced(part, own_array) for part in reduced)

    def _own_array(self, owner: Any, array: Any) -> Any:
        return array.copy() if array.base is owner else array

    def _array(self, obj: Any) -> Any:
        for way in ways.arrays:
            if (found := way(self, obj)) is not None:
                return found
        return reduce_array(self.met.memory, obj, self.note_large)

    def note_large(self, obj: Any) -> str:
        """Note what has memory that travels in pieces, and return its id."""
        if self.met.limit is not None:
            self.met.limit.spend(pieces.size(obj))
        oid = self.met.others.id_of(obj)
        self.large[oid] = obj
        return oid

    def bytes_(self, obj: pieces.Bytes) -> Any:
        """Reduce the bytes of a large array to the array that has them."""
        layout = (found := obj.array).dtype, found.shape, found.strides, found.flags.writeable
        return rebuild.large, (self.note_large(found), *layout)

    def _member(self, obj: Any, kind: Any) -> Any:
        if not travels_by_value(kind):
            return NotImplemented
        if kind.__members__.get(obj._name_) is obj:
            return rebuild.member, (kind, obj._name_)
        return rebuild.combination, (kind, obj._value_)


def _lacks_a_name(obj: type) -> bool:
    module = sys.modules.get(obj.__module__)
    return getattr(module, obj.__qualname__.partition(".")[0], None) is None


def _is_same_method(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one.__self__ is other.__self__ and bool(one == other)


KINDS: dict[type, Callable[[Pickler, Any], Any]] = {
    types.FunctionType: Pickler.function,
    types.CodeType: Pickler.code,
    types.CellType: Pickler.cell,
    types.ModuleType: Pickler.module,
    types.MethodType: Pickler.method,
    classmethod: Pickler.wrapped,
    staticmethod: Pickler.wrapped,
    type: Pickler.class_,
    abc.ABCMeta: Pickler.class_,
    object: Pickler.marker,
    pieces.Bytes: Pickler.bytes_,
    CopiedSpace: lambda _pickler, _obj: (rebuild.copied_space, ()),
    InFrame: lambda pickler, obj: reduce_in_frame(pickler.met.memory, obj),
    StandsIn: lambda pickler, obj: pickler.stays(obj.value),
    Whole: lambda _pickler, obj: reduce_whole(obj),
    typing.NewType: Pickler.new_type,
    **dict.fromkeys(TYPE_VARIABLES, Pickler.variable),
    # A model has dozens of these, whose own way needs no look at what they are.
    **dict.fromkeys((OrderedDict, defaultdict, deque), lambda _pickler, _obj: NotImplemented),
}
