"""Which objects of a component something outside it holds.

References are counted against those that come from the component itself, from the namespace and
from our own tables.  A doubt counts as held: that costs, and changes nothing.
"""

from __future__ import annotations

import gc
import itertools
import operator
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpulease.sides.libraries import library
from gpulease.sides.looks import is_a, name_of_type

from . import anatomy, in_place, ways
from .api import Note, Place
from .survey import Component
from .tables import counted, references

#: Objects that hold others and are no identity of their own: who holds one, holds what is in it.
_PASSING = (
    tuple, frozenset, types.MethodType, types.MappingProxyType, property, staticmethod, classmethod,
)  # fmt: skip


class _Probe:
    pass


def _shows_twice() -> bool:
    """Say whether the collector shows attributes under the object as well as its dictionary.

    So it is from 3.13 on, where both share one memory.
    """
    probe, mark = _Probe(), [0]
    probe.__dict__["mark"] = mark
    return any(each is mark for each in gc.get_referents(probe))


_TWICE = _shows_twice()


def held(component: Component, known: Counter[int]) -> list[Any]:
    """Return objects that something outside holds, with what those go on holding.

    ``known`` counts references from the namespace and from our own tables.
    """
    apparent = _apparently_held(component, known)
    if not apparent:
        return []
    members = {key: obj for key, (_, obj) in component.members.items()}
    asked = [key for key in members if key in apparent]
    # The component itself has each of them twice more, but no tuple that was packed as another.
    counts = {key: count - 2 for key, count in references(members, asked).items()}
    inner = _inner_references(component, members)
    unseen = [key for key in members if key not in component.members]
    counts |= references(members, unseen)
    pending = [key for key, count in counts.items() if count > inner[key] + known[key]]
    found: dict[int, Any] = {}
    while pending:
        key = pending.pop()
        if key in found or ways.may_be_held(type(members[key])):
            continue
        if key in component.spaces:  # it is filled by filling the object that it belongs to
            key = id(component.spaces[key])
        obj = found[key] = members[key]
        passes = not in_place.can_be_filled(obj)
        further = gc.get_referents(obj) if passes else in_place.keeps(obj)
        pending += [id(each) for each in further if id(each) in members]
        del obj, further
    return [obj for key, obj in found.items() if component.has(key)]


def still_held(pins: Mapping[str, Any], components: list[Component],
               held_here: Mapping[frozenset[str], list[Any]]) -> dict[str, Any]:  # fmt: skip
    """Return the pins that something outside still holds; the other side gives up the rest, too."""
    in_use = {id(obj) for objects in held_here.values() for obj in objects}
    reached = {pin for pin, obj in pins.items() if any(each.has(id(obj)) for each in components)}
    unheld = references(pins)
    return {
        pin: obj
        for pin, obj in pins.items()
        if (id(obj) in in_use if pin in reached else unheld[pin] > 0)
    }


def _apparently_held(component: Component, known: Counter[int]) -> set[int]:
    """Return the ids of what is referred to more often than what was packed accounts for.

    Few things are: only for these what was not packed is looked for.
    """
    kinds = component.kinds
    passing = {kind for kind in kinds if kind in _PASSING}
    lasting = {kind for kind in kinds if ways.may_be_held(kind)}
    # A plain object was reached through the one reference that it has, if we know of none.
    least = 1 if component.is_plain() else -1
    counts = counted(component.objects)
    asked = {
        key: count
        for key, count in _above(component, counts, least)
        if count > known[key]
        and (
            type(obj := component.members[key][1]) in passing
            or (type(obj) not in lasting and component.has(key))
        )
    }
    if not asked:
        return set()
    inner = _referred(component.objects, component.members, asked)
    return {key for key, count in asked.items() if count > inner[key] + known[key]}


def _above(component: Component, counts: list[int], least: int) -> Iterator[tuple[int, int]]:
    """Yield ids and counts that are above ``least``, less the component's own reference."""
    more = map(operator.gt, counts, itertools.repeat(least + 1))
    for key, count in itertools.compress(zip(component.members, counts, strict=True), more):
        yield key, count - 1


def _counted_ids(objects: list[Any], asked: Container[int] | None) -> Counter[int]:
    ids = map(id, objects)
    return Counter(ids if asked is None else filter(asked.__contains__, ids))


def _no_classes(objects: list[Any]) -> list[Any]:
    metas = {kind for kind in set(map(type, objects)) if issubclass(kind, type)}
    return [obj for obj in objects if type(obj) not in metas] if metas else objects


def _referred(objects: list[Any], members: Mapping[int, Any],
              asked: Container[int] | None = None) -> Counter[int]:  # fmt: skip
    """Count the references that objects hold, as far as the collector shows them.

    ``asked`` are the ids of those that are asked for.
    """
    kinds = set(map(type, objects))
    open_ = _no_classes(objects)
    if not _TWICE:
        return _counted_ids(gc.get_referents(*open_), asked)
    bare = {kind for kind in kinds if anatomy.is_bare(kind)}
    spaces = {id(obj): id(anatomy.space_of(obj)) for obj in open_ if type(obj) in bare}
    spaces = {key: space for key, space in spaces.items() if space in members}
    rest = [obj for obj in open_ if id(obj) not in spaces]
    counts = _counted_ids(gc.get_referents(*rest), asked)
    counts.update(spaces.values())
    _subtract_shared_values(counts, rest)
    return counts


def _inner_references(component: Component, members: dict[int, Any]) -> Counter[int]:
    """Count the references that the component's own objects hold; adds tuples to ``members``."""
    _add_unseen_tuples(members)
    objects = list(members.values())
    counts = _referred(objects, members)
    open_ = _no_classes(objects)
    _add_unseen(counts, gc.get_referents(*open_), members)
    np = library("numpy")
    if np is not None:
        _add_arrays(np, counts, open_)
        for buffer in component.buffers:
            shown = buffer.raw().obj
            counts[id(shown)] += 1
            if isinstance(shown, np.ndarray) and shown.base is not None:
                counts[id(shown.base)] += 1
            del shown
    return counts


def _add_unseen_tuples(members: dict[int, Any]) -> None:
    """Add tuples that objects hold and that were packed as others (of ``zip``, say)."""
    pending = [obj for obj in members.values() if not issubclass(type(obj), type)]
    while pending:
        found = {id(each): each for each in gc.get_referents(*pending) if type(each) is tuple}
        pending = [each for key, each in found.items() if key not in members]
        members.update((id(each), each) for each in pending)


def _add_unseen(counts: Counter[int], referents: list[Any], members: dict[int, Any]) -> None:
    """Add what objects hold that were not packed, and that only members or such objects hold."""
    shown, kept, inner = Counter(map(id, referents)), [referents], dict[int, Any]()
    while referents:
        found = dict(zip(map(id, referents), referents, strict=True))
        fresh = found.keys() - members.keys() - inner.keys()
        unseen = {key: found[key] for key in fresh if _may_be_inner(found[key])}
        found.clear()
        # Besides those that hold it, ``kept`` has each as often as they do.
        outer = references(unseen)
        new = {
            key: each
            for key, each in unseen.items()
            if type(each) is dict or outer[key] <= 2 * shown[key]
        }
        inner |= new
        referents = gc.get_referents(*new.values())
        kept.append(referents)
        shown.update(map(id, referents))
        counts.update(map(id, referents))


def _may_be_inner(obj: Any) -> bool:
    if type(obj) is dict:  # not a module's, which functions hold: nor that of ``builtins``
        return "__builtins__" not in obj and "__spec__" not in obj
    return gc.is_tracked(obj) and not isinstance(obj, type | types.ModuleType)


def _subtract_shared_values(counts: Counter[int], objects: list[Any]) -> None:
    kinds = set(filter(anatomy.made_by_python, set(map(type, objects))))
    for obj in objects if kinds else ():
        if type(obj) not in kinds:
            continue
        space = anatomy.space_of(obj)
        if type(space) is not dict or not space:
            continue
        shown = Counter(map(id, gc.get_referents(obj)))
        values = Counter(map(id, space.values()))
        if all(shown[key] >= count for key, count in values.items()):
            counts.subtract(values)


def _add_arrays(np: Any, counts: Counter[int], objects: list[Any]) -> None:
    """Add what arrays hold, which the collector does not show."""
    shown = (np.ndarray, np.void, np.flatiter)
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, shown)}
    for obj in objects if kinds else ():
        if type(obj) not in kinds:
            continue
        if isinstance(obj, np.ndarray):
            if obj.base is not None:
                counts.update((id(obj.base), *map(id, _under(obj.base))))
            elif obj.dtype == object:
                counts.update(map(id, obj.view(np.ndarray).ravel(order="K").tolist()))
        elif isinstance(obj, np.void | np.flatiter) and obj.base is not None:
            counts[id(obj.base)] += 1


def _under(base: Any) -> list[Any]:
    """Return what the memory under an array belongs to, where that is no array."""
    owner = base.obj if type(base) is memoryview else base
    keep = getattr(owner, "_gpulease_keep", None)  # of what shows an image's memory
    return [each for each in (owner if owner is not base else None, keep) if each is not None]


#: The end of a pin whose object cannot be given another content: of a variable's very value, and
#: of what is within one.
_MARKS = ("k", "i")
_CONTAINERS = (tuple, list, dict, set, frozenset)


def name_and_mark(component: Component, obj: Any, ns: Mapping[str, Any]) -> tuple[str, str]:
    """Return the variable that a held object is, or is within, and what its pin ends with."""
    names = sorted(component.names)
    name = next((name for name in names if ns.get(name) is obj), min(names, default=""))
    mark = "" if in_place.can_be_filled(obj) else _MARKS[obj is not ns.get(name)]
    return name, mark


def is_kept(pin: str) -> bool:
    """Say whether the object of a pin is replaced when another content comes for it."""
    return pin.endswith(_MARKS)


def unsent(components: Collection[Component], base: Collection[bytes]) -> list[Component]:
    """Leave out what no variable leads to, is kept, and the receiver had while one led to it.

    Of what was within a variable that is not known, and nobody can read it by a name.
    """
    return [each for each in components if not _was_sent(each, base)]


def _was_sent(component: Component, base: Collection[bytes]) -> bool:
    pins = [root for root in component.roots if root[0] == "p" and is_kept(root)]
    if len(pins) < len(component.roots):
        return False
    return component.digest in base or all(pin.endswith(_MARKS[1]) for pin in pins)


class Replaced:
    """Objects that commits have replaced although something held them, until they are looked at."""

    def __init__(self) -> None:
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

    def still_held(self, ns: dict[str, Any], ours: Sequence[dict[str, Any]],
                   aside: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:  # fmt: skip
        """Return once, by variable, what something still holds: in words, what does.

        With it stands whether the new content can still come.  IPython's last results do not
        count: they are what a cell showed then.  Nor do ``ours``, what we keep ``aside``, or a
        frame: that is an exception's.
        """
        self._coming.clear()
        replaced, self._objects = self._objects, {}
        names, self._names = self._names, {}
        tables = [each for each in (ns.get("_oh"), *_of_ipython()) if is_a(each, dict)]
        tables += ours
        held = _held_beside(replaced, ns, tables, aside)
        if not held:
            return {}
        _leave_out_dead(replaced)
        held = _held_beside(replaced, ns, tables, aside)
        # Numbers alone: a list of what holds them would be one more that does.
        own = set(map(id, (replaced, ns, aside, *tables, *aside.values())))
        own.update(map(id, _within(aside.values(), _may_be_inner)))
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
                 aside: Mapping[str, Any]) -> list[str]:  # fmt: skip
    """Return the pins of what is held by more than the namespace, IPython's tables and itself."""
    if not any(count > 0 for count in references(replaced).values()):
        return []
    results = [each for table in tables for each in dict.values(table)]
    known = Counter(map(id, (*ns.values(), *results)))
    known.update(map(id, _within(results)))
    known.update(map(id, (*aside.values(), *_within(aside.values(), _may_be_inner))))
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


def lasting_in(values: Mapping[str, Any]) -> list[tuple[str, Any, set[int]]]:
    """Return of variables and their containers what has an object that both sides have for good.

    That is the object itself, what cannot be filled around it, and an array over its memory.  With
    each stand its variable and the ``id`` of such objects, none for an array.
    """
    if not ways.any_lasting():
        return []
    found: list[tuple[str, Any, set[int]]] = []
    for name, value in values.items():
        inner = [value, *_within([value])]
        lasting = {id(each): each for each in inner if ways.is_lasting(type(each))}
        found += [(name, each, {key}) for key, each in lasting.items()]
        around = [each for each in inner if type(each) in (tuple, frozenset)]
        found += [(name, each, set(lasting)) for each in around if lasting]
        found += [(name, each, set()) for each in inner if in_place.is_over_lasting(each)]
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
