"""What the pickles call on the side that loads them.

They ask ``CURRENT`` for the side's own objects: its namespace, its classes and what it pinned.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import threading
import types
from collections.abc import Callable
from typing import Any, Protocol

from gpulease.wire.memory import OwnedBytes

from . import anatomy


class Here(Protocol):
    """What a loading side answers."""

    namespace: dict[str, Any]
    side: str
    #: A library's plan for the commit, and what it does then.
    plans: dict[str, Any]
    later: list[Callable[[Any], None]]
    #: By class, what gives an object its attributes.
    setters: dict[type, Callable[[Any, dict[str, Any]], None]]

    def seed(self, key: str) -> Any:
        """Return what both sides know by this key."""

    def class_of(self, oid: str) -> Any:
        """Return a class of the notebook."""

    def marker(self, oid: str) -> Any:
        """Return an ``object()``."""

    def variable(self, oid: str, parts: tuple[Any, ...]) -> Any:
        """Return a type variable."""

    def stayed(self, oid: str, kind: str, cls: Any) -> Any:
        """Return an object that stayed: itself, or what stands for it."""

    def found(self, oid: str) -> Any:
        """Return this side's lasting object with this id, None where there is none."""

    def bind(self, oid: str, obj: Any) -> None:
        """Let ``oid`` be the id of a lasting object of this side."""

    def large(self, oid: str, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
        """Return an array whose memory travels in pieces."""

    def large_memory(self, oid: str, is_same: Callable[[Any], bool], make: Callable[[Any], Any],
                     keep: Callable[[Any], None]) -> Any:  # fmt: skip
        """Return what has the memory ``oid``, written; ``make`` a new one of all, ``keep`` it."""

    def lock_later(self, array: Any) -> None:
        """Make an array read-only once all is loaded: others may be views of it."""


class _Current(threading.local):
    here: Here | None = None


CURRENT = _Current()


def here() -> Here:
    """Return the side that loads."""
    assert CURRENT.here is not None, "a pickle of ours is loaded by a side only"
    return CURRENT.here


def seed(key: str) -> Any:
    """Return what both sides know by this key."""
    return here().seed(key)


def class_of(oid: str) -> Any:
    """Return a class of the notebook."""
    return here().class_of(oid)


def marker(oid: str) -> Any:
    """Return an ``object()``."""
    return here().marker(oid)


def variable(oid: str, *parts: Any) -> Any:
    """Return a type variable or an alias of types of the notebook."""
    return here().variable(oid, parts)


def stayed(oid: str, kind: str, cls: Any) -> Any:
    """Return an object that stayed, or what stands for it."""
    return here().stayed(oid, kind, cls)


def instance(cls: Any, *made_from: Any) -> Any:
    """Return an empty instance."""
    return anatomy.put_together(cls, made_from)


fill_instance = anatomy.fill


def bare(cls: Any) -> Any:
    """Return an empty instance of a class whose instances are their attributes."""
    return object.__new__(cls)


def fill_bare(obj: Any, space: dict[str, Any]) -> None:
    """Make an instance have the very attributes of ``space``."""
    setters = here().setters
    kind = type(obj)
    if kind not in setters:
        setters[kind] = anatomy.way_to_space(kind).__set__
    setters[kind](obj, space)


def code(make: Any, parts: tuple[Any, ...], filename: str) -> types.CodeType:
    """Return code that is found in the text that it came from."""
    made: types.CodeType = make(*parts)
    return made if made.co_filename == filename else made.replace(co_filename=filename)


def function(code: types.CodeType, closure: Any, space: Any) -> Any:
    """Return a function over ``space``: its dictionary, a module or its name, the notebook's."""
    if space is None:
        space = here().namespace
    elif type(space) is str:
        space = vars(__import__(space, fromlist=["*"]))
    elif type(space) is types.ModuleType:
        space = vars(space)
    return types.FunctionType(code, space, code.co_name, None, closure)


def copied_space() -> dict[str, Any]:
    """Return what stands here for a copy of the notebook's namespace, until it is filled."""
    namespace = here().namespace
    return {name: namespace[name] for name in namespace.keys() & {"__name__", "__builtins__"}}


FUNCTION_PARTS = (
    "__name__", "__qualname__", "__module__", "__doc__",
    "__defaults__", "__kwdefaults__", "__type_params__", "__annotate__", "__annotations__",
)  # fmt: skip


def parts_of(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function is besides its code, closure and globals."""
    parts = {
        name: getattr(function, name) for name in FUNCTION_PARTS[:7] if hasattr(function, name)
    }
    annotate = getattr(function, "__annotate__", None)
    if annotate is None:
        return parts | {"__annotations__": function.__annotations__}
    # From 3.14 on annotations are code, which is not run for a look: what it gave may be there.
    held = [function.__globals__, function.__dict__, function.__kwdefaults__]
    found = [
        each
        for each in gc.get_referents(function)
        if type(each) is dict and not any(each is known for known in held)
        and each is not getattr(function, "__builtins__", None)
    ]  # fmt: skip
    if found:
        return parts | {"__annotations__": found[0]}
    return parts | {"__annotate__": annotate}


def fill_function(made: Any, state: tuple[dict[str, Any], Any, dict[str, Any] | None]) -> None:
    """Give a function its parts; whichever it has besides are as for a new one."""
    parts, space, read = state
    if read is not None:
        made.__globals__.update(read)
    for name in FUNCTION_PARTS:
        if name in parts and getattr(made, name, None) is not parts[name]:
            setattr(made, name, parts[name])
    if made.__dict__ is not space:
        made.__dict__ = space


def fill_noted(made: Any, content: tuple[Any, Any, dict[str, Any]]) -> None:
    """Fill an object as Python does, or in its own way, and give it the attributes left out."""
    fill, state, noted = content
    if fill is not None:
        fill(made, state)
    elif hasattr(made, "__setstate__") and state is not None:
        made.__setstate__(state)
    elif state is not None:
        space, slots = state if type(state) is tuple else (state, None)
        vars(made).update(space or {})
        for name, value in (slots or {}).items():
            setattr(made, name, value)
    vars(made).update(noted)


def wrapped(kind: Any, function: Any, space: dict[str, Any]) -> Any:
    """Return a class or static method with these attributes."""
    made = kind(function)
    vars(made).update(space)
    return made


def cell() -> types.CellType:
    """Return an empty cell."""
    return types.CellType()


def fill_cell(made: types.CellType, state: tuple[Any, ...]) -> None:
    """Put a value into a cell, or leave it empty."""
    if state:
        made.cell_contents = state[0]
    else:
        with contextlib.suppress(ValueError):  # it is empty
            del made.cell_contents


def class_cell(cls: type) -> types.CellType:
    """Return a cell that holds the attributes of a class, as compiled annotations need it."""
    return types.CellType(anatomy.space_of_class(cls))


def member(cls: Any, name: str) -> Any:
    """Return a member of an enumeration whose content may not be here yet."""
    return cls.__members__[name]


def combination(cls: Any, value: Any) -> Any:
    """Return flags that have no name together."""
    return cls(value)


def free_lock(name: str) -> Any:
    """Return a new lock that nobody holds."""
    return getattr(threading, name)()


def constant(module: str, name: str) -> Any:
    """Return what an installed module has under a name."""
    return operator.attrgetter(name)(__import__(module, fromlist=["*"]))


def namespace() -> Any:
    """Return the notebook's namespace."""
    return here().namespace


# ---- memory


#: Up to this size an array that arrives is copied, so that it owns its memory as a new one does.
COPIED_BYTES = 1 << 20


def array(raw: Any, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """Return an array with memory of its own."""
    import numpy as np

    size = memoryview(raw).nbytes
    if not size:
        made = np.empty(shape, dtype)
    elif size <= COPIED_BYTES:
        made = np.ndarray(shape, dtype, buffer=raw, strides=strides).copy(order="K")
    else:
        raw = getattr(raw, "obj", raw)  # of what is read-only a view comes, of such memory
        own = raw if type(raw) is OwnedBytes else OwnedBytes(raw)
        made = np.ndarray(shape, dtype, buffer=own, strides=strides)
    if not writeable:
        here().lock_later(made)
    return made


def large(oid: str, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """Return the array with this id, whose memory is large."""
    return here().large(oid, dtype, shape, strides, writeable)


def view(  # noqa: PLR0917 - a pickle passes arguments by position
    memory: Any, kind: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool
) -> Any:
    """Return an array over memory that others show, too (``offset`` in bytes)."""
    import numpy as np

    if isinstance(memory, np.ndarray):
        whole = memory.view(np.ndarray)
        memory = (whole if whole.flags.c_contiguous else whole.T).reshape(-1).view("u1")
    made = np.ndarray.__new__(kind, shape, dtype, buffer=memory, offset=offset, strides=strides)
    if not writeable:
        here().lock_later(made)
    return made


def same(obj: Any) -> Any:
    """Return what is given."""
    return obj


def row(memory: Any, dtype: Any, offset: int) -> Any:
    """Return one row of a structured array, over the array's memory."""
    import numpy as np

    return view(memory, np.ndarray, dtype, (), (), offset, True)[()]


def objects(kind: Any, shape: Any, order: Any) -> Any:
    """Return an array of objects without any."""
    import numpy as np

    return np.ndarray.__new__(kind, shape, object, order=order)


def fill_objects(made: Any, state: tuple[list[Any], bool, Any]) -> None:
    """Put objects into an array, in memory's order."""
    items, writeable, space = state
    flat = made.view(type=_array_type()).ravel(order="K")
    for index, item in enumerate(items):
        flat[index] = item
    fill_array(made, (space,))
    if not writeable:
        here().lock_later(made)


def object_view(  # noqa: PLR0917 - as above
    memory: Any, kind: Any, shape: Any, strides: Any, start: int, writeable: bool
) -> Any:
    """Return a view of an array of objects, from its element ``start``."""
    import numpy as np

    flat = memory.view(np.ndarray).ravel(order="K")[start:]
    made = np.lib.stride_tricks.as_strided(flat, shape, strides, writeable=writeable)
    return made if kind is np.ndarray else made.view(kind)


def fill_array(made: Any, state: tuple[Any]) -> None:
    """Give an array of a class of its own its attributes."""
    if state[0] is not None and made.__dict__ is not state[0]:
        made.__dict__ = state[0]


def _array_type() -> Any:
    import numpy as np

    return np.ndarray
