"""Which objects of a group can be seen from outside it, and so must stay themselves.

Owns the count: an object that has more references than its group and its names account for is
held by something that does not travel (a callback, a thread, ``Out``).  Where the type allows, it
is *pinned*: it travels by id, and its content is put into the object that is there already.
"""

from __future__ import annotations

import bisect
import gc
import itertools
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from gpulease.transfer.arrays import SharedMemory, buffer_owner, byte_bounds
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.libraries import library
from gpulease.transfer.refuse import RefusedError
from gpulease.transfer.registry import is_oid
from gpulease.transfer.values.kinds.array_reduction import whole_of
from gpulease.transfer.values.kinds.arrays_in_place import is_array
from gpulease.transfer.values.kinds.containers import is_container
from gpulease.transfer.values.kinds.units import can_pin, is_plain_instance, own_space
from gpulease.transfer.values.packing.pickling import Packed

from .names import path
from .stays import leaves

if TYPE_CHECKING:
    from .groups import Group, Survey
    from .side import Side

#: Larger groups are replaced whole: counting their references would cost more than it is worth.
_LIMIT = 20_000
#: References of our own while counting: the group's table, our list, the loop, the call.
_OURS = 4
_PLAIN = frozenset({list, dict, tuple, set, frozenset, bytearray})


def pins_of(side: Side, group: Group, survey: Survey, packed: Packed) -> dict[str, Any]:
    """Return oid to object for what keeps its identity on the other side."""
    if not may_have_pins(side, group):
        return {}
    spaces = _spaces(group)
    shared = _shared(group, spaces)
    able = [o for o in group.inner.values() if can_pin(o) and id(o) not in shared]
    if not able:
        return {}
    # An instance may have got its dictionary only now: the walk saw its attributes without one.
    known = Counter(map(id, gc.get_referents(*(group.inner | spaces).values())))
    known.update(id(side.ns[name]) for name in group.names)
    for oid in group.oids:
        unit = survey.units.get(oid)
        if unit is not None:
            known.update(map(id, gc.get_referents(unit)))
    known.update(map(id, group.arrays))
    known.update(map(id, map(_owner, packed.buffers)))  # no name here may keep one of them
    pins = {}
    for obj in able:
        if side.registry.find(obj) is not None or sys.getrefcount(obj) > known[id(obj)] + _OURS:
            pins[side.registry.oid(obj)] = obj
    return pins


def _shared(group: Group, spaces: Mapping[int, Any]) -> set[int]:
    """Return by id what is a part of another object, or shows memory that another one shows."""
    shared = SharedMemory(group.arrays).ids | spaces.keys()
    shared.update(map(id, map(buffer_owner, group.arrays)))
    shared.update(_viewed(group.arrays))
    shared.update(map(id, group.shown))
    shared.update(_shown(group))
    return shared


def _shown(group: Group) -> set[int]:
    """Return the arrays, by id, whose memory an object of a framework shows as well."""
    if not group.spans:
        return set()
    spans = sorted(group.spans)
    ends = list(itertools.accumulate((high for _, high in spans), max))

    def is_met(array: Any) -> bool:
        low, high = byte_bounds(array)
        before = bisect.bisect_left(spans, (high,))
        return before > 0 and ends[before - 1] > low

    return {id(a) for a in group.arrays if a.size and is_met(a)}


def _viewed(arrays: list[Any]) -> set[int]:
    """Return the arrays of objects, by id, that others of these are views of."""
    wholes = ((whole_of(a), a) for a in arrays if a.dtype.hasobject)
    return {id(whole) for whole, array in wholes if whole is not array}


def may_have_pins(side: Side, group: Group) -> bool:
    """Say whether objects of a group may be filled after all of it was loaded."""
    if len(group.inner) > _LIMIT or not all(map(_loads_blindly, group.inner.values())):
        return False
    culprits = side.packer.culprits  # of these the other side could not make an empty one
    return not any(sealed.is_wanted(obj, culprits) for obj in culprits and group.inner.values())


def refuse_kept(side: Side, group: Group, survey: Survey) -> None:
    """Raise RefusedError where a leaf here keeps a part that could not stay itself here.

    Beside the GPU nobody could say so when another one comes; at home it is said by name.
    """
    held = survey.held
    found = [held.stuck[root] for root in group.roots if root in held.stuck]
    kept = held.objects.keys() & group.inner.keys()
    if kept and not found:
        uncounted = len(group.inner) > _LIMIT
        if uncounted or (side.label == "a" and not _can_stay(side, group, kept)):
            found = [held.objects[min(kept)]]
    if found:
        values = {name: survey.values[name] for name in side.names() if name in survey.values}
        where, kind = path.way_to(values, found[0]), leaves.leaf_kind(found[0])
        who, end = f"{where}, {kind}" if where else kind, "that is deleted, it travels"
        if not where and (name := path.name_of(values, found[0])):  # an iterator over others has it
            who, end = f"{kind} that {name} holds", f"{name} is deleted, the rest travels"
        raise RefusedError(f"it is in use by {who}; once {end}")


def _can_stay(side: Side, group: Group, keys: Collection[int]) -> bool:
    if not may_have_pins(side, group):
        return False
    shared = _shared(group, _spaces(group))
    return all(can_pin(group.inner[key]) and key not in shared for key in keys)


def is_unknown_there(side: Side, group: Group, survey: Survey) -> bool:
    """Say whether a leaf here keeps a part of which home does not know the id."""
    kept = survey.held.objects.keys() & group.inner.keys() if side.label == "a" else ()
    known = side.ledger.peer_units
    return any(side.registry.find(group.inner[key]) not in known for key in kept)


def must_stay(side: Side, group: Group, survey: Survey) -> set[str]:
    """Return the ids of parts that a leaf on the GPU's side keeps."""
    remote = side.ledger.remote.values()
    told = survey.kept.union(r for absent in remote for r in absent.reads if is_oid(r))
    if not told:
        return set()
    found = (side.registry.find(obj) for obj in group.inner.values())
    return {oid for oid in found if oid in told}


def is_newly_held(side: Side, group: Group, survey: Survey, packed: Packed) -> bool:
    """Say whether anything outside holds a part of which the other side does not know the id.

    Only where the group is small, and every part could keep its identity there.
    """
    settings = side.settings
    small = group.nbytes <= settings.small_bytes and group.objects <= settings.small_objects
    if not small or not all(map(can_pin, group.arrays)):
        return False
    return not side.ledger.peer_units.issuperset(pins_of(side, group, survey, packed))


def seen_outside(side: Side, group: Group, survey: Survey) -> bool:
    """Say whether anything but the group and its names may refer into it; when in doubt, yes."""
    if not group.inner:
        return False
    owners = [owner for a in group.arrays if (owner := buffer_owner(a)) is not None]
    if len(group.inner) > _LIMIT or any(id(owner) not in group.inner for owner in owners):
        return True
    known = Counter(map(id, gc.get_referents(*group.inner.values())))
    known.update(id(side.ns[name]) for name in group.names)
    known.update(map(id, (*group.arrays, *group.claimed, *owners)))
    units = [unit for oid in group.oids if (unit := survey.units.get(oid)) is not None]
    known.update(map(id, gc.get_referents(*units)))
    return any(sys.getrefcount(obj) > known[id(obj)] + _OURS for obj in group.inner.values())


def is_plain(obj: Any) -> bool:
    """Say whether loading ``obj`` never reads what it refers to.

    A pinned object has its old content until the commit, so nobody may look into it before: no
    constructor that iterates over an argument, no hash of an attribute.
    """
    if type(obj) in _PLAIN:
        return True
    if is_array(obj) or _is_scalar(type(obj)):
        return True
    return not _has_own_hash(type(obj)) and (is_plain_instance(obj) or is_container(obj))


def _has_own_hash(kind: type) -> bool:
    """Say whether a class hashes by what it holds; a MagicMock's, asked itself, makes a mock."""
    made = next(vars(base)["__hash__"] for base in kind.__mro__ if "__hash__" in vars(base))
    return made is not None and made is not object.__hash__


def _loads_blindly(obj: Any) -> bool:
    """As ``is_plain``; a tensor is loaded from its memory, and gets all else at the commit."""
    return is_plain(obj) or _is_tensor(type(obj))


def _is_tensor(kind: type) -> bool:
    torch = library("torch")
    return torch is not None and kind in (torch.Tensor, torch.nn.Parameter)


def _is_scalar(kind: type) -> bool:
    """Say whether this is one of numpy's own numbers, which refer to nothing."""
    numpy = library("numpy")
    if numpy is None or not issubclass(kind, numpy.generic):
        return False
    return kind in numpy.ScalarType and kind is not numpy.void


def _spaces(group: Group) -> dict[int, Any]:
    """Return by id the instances' own attribute dictionaries: they are part of the instance."""
    spaces = (own_space(obj) for obj in group.inner.values() if type(obj) not in _PLAIN)
    return {id(space): space for space in spaces if space is not None}


def _owner(view: memoryview) -> Any:
    """Return the array whose memory a packed buffer is."""
    return getattr(view.obj, "base", None)
