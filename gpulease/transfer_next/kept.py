"""What something outside holds and cannot be given another content: it keeps the old object.

The variable then has a new object, and the cell's note names the holder of the old one.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from gpulease.sides.looks import is_a, name_of_type

from . import in_place
from .api import Note, Place
from .references import references
from .survey import Component

#: The end of a pin whose object cannot be given another content: of a variable's very value, and
#: of what is within one.
_MARKS = ("k", "i")


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
        #: By pin, the variable that each was in, or "", and the object.
        self._names: dict[str, str] = {}
        self._objects: dict[str, Any] = {}

    def add(self, pin: str, name: str, obj: Any) -> None:
        """Note one."""
        self._names[pin], self._objects[pin] = name, obj

    def still_held(self, ns: dict[str, Any]) -> dict[str, str]:
        """Return once, by variable, what something still holds, and what that is in words.

        IPython's last results do not count: they are what a cell showed then.
        """
        replaced, self._objects = self._objects, {}
        if not any(count > 0 for count in references(replaced).values()):
            return {}
        gc.collect()  # what looks like a holder may be a circle that nobody has
        results = ns.get("_oh")
        own = [replaced, ns, *([results] if type(results) is dict else [])]
        known = Counter(id(each) for table in own[1:] for each in table.values())
        inner = gc.get_referents(*replaced.values())
        inner += gc.get_referents(*(each for each in inner if type(each) in (dict, list, tuple)))
        known.update(map(id, inner))
        del inner
        counts = references(replaced).items()
        held = [pin for pin, count in counts if count > known[id(replaced[pin])]]
        return {self._names[pin]: _holder(replaced[pin], own) for pin in held if self._names[pin]}


def _holder(obj: Any, own: Collection[Any]) -> str:
    """Say in words what refers to an object besides tables of our ``own``."""
    for found in gc.get_referrers(obj):
        if any(found is each for each in own) or is_a(found, types.FrameType):
            continue
        if is_a(found, types.CellType | types.FunctionType | types.MethodType):
            return "a function"
        if type(found) is dict:
            module = sys.modules.get(str(found.get("__name__", "")))
            if module is not None and vars(module) is found:
                return f"the module {module.__name__}"
            owners = gc.get_referrers(found)
            return _called(next((each for each in owners if type(each).__dictoffset__), found))
        return _called(found)
    return "something"


def _called(obj: Any) -> str:
    kind = name_of_type(type(obj))
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def note(name: str, holder: str, place: Place, *, bound: bool) -> Note:
    """Say which object was replaced on a side, and what still holds the old one.

    ``bound``: whether the variable is there still.
    """
    here = "in your notebook" if place is Place.HOME else "on the GPU"
    other = "a GPU cell" if place is Place.HOME else "a cell of your notebook"
    what = f"is another object {here} since {other} changed it" if bound else "was deleted"
    step = f"Give it {name} again where it matters." if bound else "What changed is not in it."
    sentence = (
        f"{name} {what}, and {holder} that is in none of your variables still has the one "
        f"from before. {step}"
    )
    return Note("kept_old_object", sentence, (name,))
