"""Puts a staged parcel in place: all of it, or nothing.

No code of the notebook's is called.  Whatever is written is noted before, so that a failure at any
step leaves this side as it was.  What something goes on holding as it was before is named after it.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpulease.sides.looks import is_a, name_of_type

from . import in_place, own, state, ways
from .api import Note, Parcel, Place, StageError
from .classes import Undo
from .loader import Staged
from .roots import Roots
from .tables import may_be_inner, references


def apply(staged: Staged, roots: Roots, pins: Mapping[str, Any]) -> None:
    """Write everything; raises after it has taken back what it wrote."""
    undo = staged.undo
    # What is replaced lives until the end: it dies after the commit, not within.
    before = roots.copy()
    undo.add(lambda: roots.restore(before))
    try:
        for pin, content in staged.contents.items():
            if not in_place.fill(pins[pin], content, undo):
                raise StageError(
                    f"the {type(pins[pin]).__name__} in it is held by something that no variable "
                    "leads to, and cannot be given its new shape",
                    [r for each in staged.parcel.components if pin in each.filled
                     for r in each.roots],
                )  # fmt: skip
        for array in staged.locked:
            array.flags.writeable = False
        _bind(staged, roots)
        _set_state(staged.parcel.state, undo)
        for step in staged.later:
            step(undo)
    except BaseException:
        undo.run()
        raise


def _set_state(new: dict[str, Any], undo: Undo) -> None:
    before = state.read()
    undo.add(lambda: state.apply(before))
    state.apply(new)


def _bind(staged: Staged, roots: Roots) -> None:
    parcel = staged.parcel
    if parcel.names is not None:
        sealed = {name for packed, _ in staged.sealed for name in packed.names}
        roots.keep_only({*parcel.names, *parcel.yours} - parcel.away.keys() - sealed)
    values = {root[2:]: value for root, value in staged.values.items() if root[0] == "n"}
    if parcel.names is not None:  # what the sender could not open may hold a name that it deleted
        values = {n: values[n] for n in values.keys() & {*parcel.names, *parcel.yours}}
    roots.bind(values)
    own.put({root: value for root, value in staged.values.items() if root[0] == "m"}, staged.undo)
    if parcel.names is not None:
        roots.sort(parcel.names)


class Replaced:
    """Objects that commits have replaced although something held them, until they are looked at."""

    def __init__(self, ns: dict[str, Any], ours: Callable[[], Sequence[dict[str, Any]]]) -> None:
        self._ns, self._ours = ns, ours
        #: By pin, the variable that each was in, or "", and, where its new content can still come,
        #: the ``id`` of what is filled with it.
        self._names: dict[str, tuple[str, set[int] | None]] = {}
        self._objects: dict[str, Any] = {}
        #: Those whose new content is asked for.
        self._coming: dict[str, tuple[str, set[int], Any]] = {}

    def add(self, pin: str, name: str, obj: Any, comes: set[int] | None = None) -> None:
        """Note one."""
        self._names[pin], self._objects[pin] = (name, comes), obj

    def arrived(self, names: Collection[str], filled: Collection[int]) -> None:
        """Note of what was to come first, and came with these variables, what was not in it."""
        for pin in [pin for pin, (name, *_) in self._coming.items() if name in names]:
            name, comes, obj = self._coming.pop(pin)
            if comes and comes.isdisjoint(filled):
                self.add(pin, name, obj)

    def still_held(self, aside: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
        """Return once, by variable, what something still holds: in words, what does.

        With it stands whether the new content can still come.  IPython's last results do not
        count: they are what a cell showed then.  Nor do our own tables, what we keep ``aside``, or
        a frame: that is an exception's.
        """
        self._coming.clear()
        replaced, self._objects = self._objects, {}
        names, self._names = self._names, {}
        ns = self._ns
        tables = [each for each in (ns.get("_oh"), *_of_ipython()) if is_a(each, dict)]
        tables += self._ours()
        if not any(count > 0 for count in references(replaced).values()):
            return {}
        # Numbers alone: a list of what holds them would be one more that does.
        older = Counter(map(id, (*aside.values(), *_within(aside.values(), may_be_inner))))
        if not _held_beside(replaced, ns, tables, older):
            return {}
        _leave_out_dead(replaced)
        held = _held_beside(replaced, ns, tables, older)
        own = {*map(id, (replaced, ns, aside, *tables)), *older}
        words = {pin: _holder(replaced[pin], ns, own) for pin in held if names[pin][0]}
        said: dict[str, tuple[str, bool]] = {}
        for pin in (pin for pin, holder in words.items() if holder):
            name, comes = names[pin]
            if comes is None:
                said[name] = words[pin], False
            else:
                self._coming[pin] = name, comes, replaced[pin]
                said.setdefault(name, (words[pin], True))
        return said


def _held_beside(replaced: dict[str, Any], ns: dict[str, Any], tables: list[dict[Any, Any]],
                 older: Counter[int]) -> list[str]:  # fmt: skip
    """Return the pins of what is held by more than the namespace, these tables and itself.

    ``older`` counts the references by ``id`` from what is kept aside.
    """
    results = [each for table in tables for each in dict.values(table)]
    known = Counter(map(id, (*ns.values(), *results)))
    known.update(map(id, _within(results)))
    known.update(older)
    inner = gc.get_referents(*replaced.values())
    inner += gc.get_referents(*(each for each in inner if type(each) in (dict, list, tuple)))
    known.update(map(id, inner))
    del inner, results
    counts = references(replaced).items()
    return [pin for pin, count in counts if count > known[id(replaced[pin])]]


def _leave_out_dead(objects: dict[str, Any]) -> None:
    """Take out what only a circle holds that nobody has, as a figure's canvas holds the figure."""
    alive = {}
    for pin in list(objects):
        with suppress(TypeError):  # lists and dictionaries know no weak references
            alive[pin] = weakref.ref(objects[pin])
            del objects[pin]
    gc.collect()
    objects |= {pin: obj for pin, ref in alive.items() if (obj := ref()) is not None}


def _of_ipython() -> list[Any]:
    """Return the tables in which IPython keeps last results besides the notebook's own."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = ask() if ask is not None else None
    if shell is None:
        return []
    hook, last = shell.displayhook, shell.last_execution_result
    ended = [vars(each) for each in {id(e): e for e in (last, hook.exec_result) if e}.values()]
    return [shell.user_ns_hidden, vars(hook), *ended]


_CONTAINERS = frozenset((tuple, list, dict, set, frozenset))
#: Those that cannot be filled.
_FIXED = frozenset((tuple, frozenset))


def _is_container(obj: Any) -> bool:
    return type(obj) in _CONTAINERS


def _within(objects: Iterable[Any], passes: Callable[[Any], bool] = _is_container) -> list[Any]:
    """Return what containers among these hold, and those in them, once for each reference."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting = list(filter(passes, objects))
    while waiting:
        obj = waiting.pop()
        if id(obj) not in seen:
            seen.add(id(obj))
            inner = gc.get_referents(obj)
            found += inner
            waiting += filter(passes, inner)
    return found


def left_behind(
    parcel: Parcel, values: Mapping[str, Any], pins: Iterable[tuple[str, Any]]
) -> list[tuple[str, Any, set[int]]]:
    """Return what something may go on holding as it is before a commit (see ``_lasting_in``).

    Of what is replaced, what both sides have for good; of what does not come, all.  ``pins`` are
    what something holds, each with its variable.
    """
    fresh = {name for each in parcel.components for name in each.names}
    gone = set(parcel.away)
    if parcel.names is not None:
        gone |= values.keys() - {*parcel.names, *parcel.yours}
    lasting = _lasting_in({name: values[name] for name in (fresh | gone) & values.keys()})
    return [
        *(each for each in lasting if each[2] or each[0] in gone),
        *((name, obj, set[int]()) for name, obj in pins if name in parcel.away),
    ]


def _lasting_in(values: Mapping[str, Any]) -> list[tuple[str, Any, set[int]]]:
    """Return of variables and their containers what has an object that both sides have for good.

    That is the object itself, what cannot be filled around it, and an array over its memory.  With
    each stand its variable and the ``id`` of such objects, none for an array.
    """
    if not ways.any_followed():
        return []
    found: list[tuple[str, Any, set[int]]] = []
    for name, value in values.items():
        inner = [value, *_within([value])]
        kinds = set(map(type, inner))  # few, of what may be many thousands
        followed = {kind for kind in kinds if ways.is_followed(kind)}
        lasting = {id(each): each for each in inner if type(each) in followed}
        found += [(name, each, {key}) for key, each in lasting.items()]
        around = [each for each in inner if type(each) in _FIXED] if lasting else []
        found += [(name, each, set(lasting)) for each in around]
        arrays = {kind for kind in kinds if in_place.is_array(kind)}
        over = [each for each in inner if type(each) in arrays and in_place.is_over_lasting(each)]
        found += [(name, each, set()) for each in over]
    return found


def _holder(obj: Any, ns: Mapping[str, Any], own: Container[int]) -> str:
    """Say in words what refers to an object besides our ``own``, by ``id``.

    Return "" where only frames do, which are an exception's, or of what each side has for good
    only compiled code: a graph holds tensors so.
    """
    referrers = [each for each in gc.get_referrers(obj) if id(each) not in own]
    others = [each for each in referrers if not is_a(each, types.FrameType)]
    if not others:
        return "" if referrers or ways.is_lasting(type(obj)) else f"something {_NO_VARIABLE}"
    holding = {id(each) for each in others if type(each) is not dict}
    names = [name for name, value in ns.items() if id(value) in holding]
    return min(names, default=_in_words(others[0]))


_NO_VARIABLE = "that is in none of your variables"


def _in_words(found: Any) -> str:
    if is_a(found, types.CellType | types.FunctionType | types.MethodType):
        return f"a function {_NO_VARIABLE}"
    if type(found) is not dict:
        return f"{_called(found)} {_NO_VARIABLE}"
    module = sys.modules.get(str(found.get("__name__", "")))
    if module is not None and vars(module) is found:
        return f"the module {module.__name__}"
    owners = gc.get_referrers(found)
    owner = next((each for each in owners if type(each).__dictoffset__), found)
    return f"{_called(owner)} {_NO_VARIABLE}"


def _called(obj: Any) -> str:
    kind = name_of_type(type(obj))
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def note(name: str, holder: str, place: Place, *, bound: bool, newer: bool) -> Note:
    """Say which object was replaced on a side, and what still holds the old one.

    ``bound``: whether the variable is there still; ``newer``: its value cannot come there.
    """
    here, there = "in your notebook", "on the GPU"
    other = "a GPU cell"
    if place is Place.GPU:
        here, there, other = there, here, "a cell of your notebook"
    what, step = "was deleted", "What changed is not in it."
    if newer:
        what = f"is newer {there} and cannot come"
    elif bound:
        what = f"is another object {here} since {other} changed it"
        step = f"Give it {name} again where it matters."
    sentence = f"{name} {what}, and {holder} still has the one from before. {step}"
    return Note("kept_old_object", sentence, (name,))
