"""How single objects of a notebook's classes are taken apart; loading runs none of their code.

Owns the reduction of instances, containers, exceptions and members of enumerations.  It knows
nothing of groups, buffers or the stream that they go into.
"""

from __future__ import annotations

import copyreg
import enum
import types
from collections.abc import Callable
from typing import Any

from . import enums, made_of, tokens
from .units import is_plain_instance, is_unit, own_space, slots_of


def reduce_own(obj: Any) -> Any:
    """Reduce an instance of a notebook's class so that loading runs nothing of that class."""
    kind = type(obj)
    if isinstance(obj, list | dict):
        return _reduce_container(obj) if _fills_itself(kind) else NotImplemented
    if isinstance(obj, tuple):
        named = "_fields" in dir(kind) and not own_space(obj)
        return (tokens.tuple_of, (kind, tuple(obj))) if named else _reduce_tuple(obj)
    made_by: Any = kind.__new__
    # Loading would ask an empty one for its ``__setstate__``, and that may not know how to say no.
    answers = _answers(kind)
    if (answers or made_by is not object.__new__) and is_plain_instance(obj, made_itself=True):
        if not answers:
            return tokens.instance, (kind,), obj.__getstate__()
        slots, space = slots_of(obj), own_space(obj)
        state = (space, slots) if slots else space
        return tokens.instance, (kind,), state, None, None, tokens.instance_state
    return NotImplemented


#: Classes whose ``__getstate__`` leaves out what a cell can read (the trainer of a model), or gives
#: a copy of what another name may have (the coefficients of a polynomial).
_FORGETFUL = {
    ("lightning", "LightningModule"), ("pytorch_lightning", "LightningModule"),
    ("numpy", "ABCPolyBase"),
}  # fmt: skip


def reduce_whole(obj: Any) -> Any:
    """Reduce an instance with all of its very attributes where its own way does not."""
    if (value := made_of.reduce(obj)) is not NotImplemented:
        return value
    own: Any = type(obj).__getstate__
    if own is object.__getstate__:
        return NotImplemented
    for base in type(obj).__mro__:
        if ((base.__module__ or "").partition(".")[0], base.__name__) in _FORGETFUL:
            return copyreg.__newobj__, (type(obj),), dict(obj.__dict__)  # type: ignore[attr-defined]
    return NotImplemented


def _answers(kind: type) -> bool:
    """Say whether instances answer when they are asked for what they have not."""
    return any("__getattr__" in vars(base) for base in kind.__mro__)


_TUPLES: Any = tuple


def _reduce_tuple(obj: tuple[Any, ...]) -> Any:
    """Reduce a tuple whose class makes it from something else than its items.

    Its ``__new__`` ran when it was made: of its items again it makes another tuple, or none.
    """
    kind: Any = type(obj)
    ways = (kind.__getnewargs__, kind.__reduce_ex__, kind.__reduce__)
    usual = (_TUPLES.__getnewargs__, object.__reduce_ex__, object.__reduce__)
    if ways != usual or kind.__new__ is tuple.__new__ or hasattr(kind, "__setstate__"):
        return NotImplemented
    state = object.__getstate__(obj)
    made = tokens.tuple_of, (kind, tuple(obj))
    return made if state is None else (*made, state, None, None, tokens.instance_state)


def reduce_answering(obj: Any) -> Any:
    """Reduce an instance of an imported class that answers when asked for what it has not.

    Loading would ask an empty one whether it has a ``__setstate__``; that of a mock never ends.
    """
    kind: Any = type(obj)
    if isinstance(obj, tuple) and (reduced := _reduce_tuple(obj)) is not NotImplemented:
        return reduced
    if isinstance(obj, type) or not _answers(kind) or hasattr(kind, "__setstate__"):
        return NotImplemented
    if (kind.__reduce_ex__, kind.__reduce__) != (object.__reduce_ex__, object.__reduce__):
        return NotImplemented
    reduced = object.__reduce_ex__(obj, 5)
    if isinstance(reduced, str) or len(reduced) < 3 or reduced[2] is None:
        return reduced
    maker, args, state, items, pairs = (*reduced, None, None)[:5]
    return maker, args, state, items, pairs, tokens.instance_state


def reduce_member(member: enum.Enum) -> Any:
    """Reduce a member to its class and name, an unnamed combination to its value."""
    name = enums.name_of(member)
    if name is None:
        return tokens.combination, (type(member), member._value_)
    return tokens.member, (type(member), name)


def _fills_itself(kind: type) -> bool:
    """Say whether loading would run the class's own way of filling it."""
    own = [vars(base) for base in kind.__mro__ if base.__flags__ & (1 << 9)]
    named = ("__setitem__", "append", "extend", "__iter__", "items", "update")
    return any(name in space for space in own for name in named)


def _reduce_container(obj: Any) -> Any:
    reduced = obj.__reduce_ex__(5)
    if isinstance(reduced, str) or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return reduced  # it has a way of its own
    items = list(list.__iter__(obj)) if isinstance(obj, list) else []
    pairs = list(dict.items(obj)) if isinstance(obj, dict) else []
    return (*reduced[:2], (reduced[2], items, pairs), None, None, tokens.container_state)


def reduce_exception(exc: BaseException) -> Any:
    """Reduce an exception with attributes, cause and context; its frames stay."""
    reduced = exc.__reduce_ex__(5)
    if isinstance(reduced, str) or len(reduced) > 3:
        return reduced
    maker, args, *state = reduced
    if _only_has_args(exc) and maker is type(exc):
        maker, args = tokens.exception, (maker, args)
    rest = state[0] if state and not isinstance(state[0], dict) else None
    extra = (
        dict(exc.__dict__),
        exc.__cause__,
        exc.__context__,
        exc.__suppress_context__,
        rest,
    )
    return maker, args, extra, None, None, tokens.exception_state


def _only_has_args(exc: BaseException) -> bool:
    """Say whether an exception of a notebook's class is its arguments and attributes.

    Then it is rebuilt without its constructor, which may want other arguments than it passed on.
    """
    own = ("__reduce__", "__reduce_ex__", "__new__", "__setstate__")
    for base in type(exc).__mro__:
        if is_unit(base):
            if any(name in base.__dict__ for name in own):
                return False
        elif base is not object:
            return base.__basicsize__ == BaseException.__basicsize__ and base is not type(exc)
    return False


def reduce_code(by_cloudpickle: Callable[[types.CodeType], Any], code: types.CodeType) -> Any:
    """Reduce code with the name of its file, by which its text is found.

    cloudpickle leaves the name out from 3.1.3 on.
    """
    make, args, *rest = by_cloudpickle(code)
    return (make, args, *rest) if code.co_filename in args else (
        code_of_file, (code.co_filename, make, args)
    )  # fmt: skip


def code_of_file(name: str, make: Callable[..., types.CodeType], args: tuple[Any, ...]) -> Any:
    """Make code again that has the name of its file."""
    return make(*args).replace(co_filename=name)
