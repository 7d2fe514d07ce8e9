"""Which objects of a group can be seen from outside it, and so must stay themselves.

Owns the count: an object that has more references than its group and its names account for is
held by something that does not travel (a callback, a thread, ``Out``).  Where the type allows, it
is *pinned*: it travels by id, and its content is put into the object that is there already.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from gpulease.sides.libraries import library
from gpulease.transfer import frameworks
from gpulease.transfer.arrays import buffer_owner
from gpulease.transfer.frameworks import sealed
from gpulease.transfer.registry import is_oid
from gpulease.transfer.values.kinds import finalizers
from gpulease.transfer.values.kinds.arrays_in_place import is_array
from gpulease.transfer.values.kinds.containers import is_container
from gpulease.transfer.values.kinds.scalars import is_scalar
from gpulease.transfer.values.kinds.units import is_plain_instance
from gpulease.transfer.values.packing.pickling import Packed
from gpulease.transfer_next import path
from gpulease.transfer_next.faces import is_row
from gpulease.transfer_next.references import references
from gpulease.transfer_next.refuse import RefusedError

from .in_place import PLAIN, Places, spaces_of
from .stays import leaves

if TYPE_CHECKING:
    from .groups import Group, Survey
    from .side import Side

#: Larger groups are replaced whole: counting their references would cost more than it is worth.
_LIMIT = 20_000


def pins_of(side: Side, group: Group, survey: Survey, packed: Packed) -> dict[str, Any]:
    """Return oid to object for what keeps its identity on the other side."""
    if not may_have_pins(side, group):
        return {}
    spaces = spaces_of(group)
    places = Places(group, spaces, side.registry)
    able = {id(o): o for o in (*group.inner.values(), *places.beneath) if places.can(o)}
    if not able:
        return {}
    # An instance may have got its dictionary only now: the walk saw its attributes without one.
    known = Counter(map(id, gc.get_referents(*(group.inner | spaces).values())))
    known.update(id(side.ns[name]) for name in group.names)
    known.update(map(id, gc.get_referents(*_units(group, survey))))
    known.update(map(id, group.arrays))
    known.update(id(a.base) for a in group.arrays if a.base is not None)
    known.update(map(id, map(_owner, packed.buffers)))  # no name here may keep one of them
    known.update(places.wholes)
    counts = references(able)  # one is that of the group's table
    pins = {}
    for key, obj in able.items():
        if (
            counts[key] > known[key] + 1
            or side.registry.find(obj) is not None
            or finalizers.watches(obj)
        ):
            pins[side.registry.oid(obj)] = obj
    for whole in [whole for obj in pins.values() if (whole := places.whole(obj)) is not None]:
        pins[side.registry.oid(whole)] = whole  # what shows its memory is made over it
    return pins


def _units(group: Group, survey: Survey) -> list[Any]:
    return [unit for oid in group.oids if (unit := survey.units.get(oid)) is not None]


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
        # At home a part that is replaced is told of; memory that nobody refers to is not.
        counted = kept if side.label == "a" else kept & held.viewed
        if len(group.inner) > _LIMIT or (counted and not _can_stay(side, group, counted)):
            found = [held.objects[min(counted or kept)]]
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
    places = Places(group, spaces_of(group), side.registry)
    kept = (group.inner[key] for key in keys)
    return all(frameworks.keeps(obj) or places.can(obj) for obj in kept)


def is_unknown_there(side: Side, group: Group, survey: Survey) -> bool:
    """Say whether a leaf here keeps a part of which home does not know the id."""
    kept = survey.held.objects.keys() & group.inner.keys() if side.label == "a" else ()
    known = side.ledger.peer_units
    objects = (group.inner[key] for key in kept)
    return any(side.registry.find(o) not in known and not frameworks.keeps(o) for o in objects)


def must_stay(side: Side, group: Group, survey: Survey) -> set[str]:
    """Return the ids of parts that a leaf on the GPU's side keeps."""
    remote = side.ledger.remote.values()
    told = survey.kept.union(r for absent in remote for r in absent.reads if is_oid(r))
    if not told:
        return set()
    found = ((side.registry.find(obj), obj) for obj in group.inner.values())
    return {oid for oid, obj in found if oid in told and not frameworks.keeps(obj)}


def is_newly_held(side: Side, group: Group, survey: Survey, packed: Packed) -> bool:
    """Say whether anything outside holds a part of which the other side does not know the id.

    Only where the group is small, and every part could keep its identity there.
    """
    settings = side.settings
    small = group.nbytes <= settings.small_bytes and group.objects <= settings.small_objects
    if not small or not all(map(Places(group, spaces_of(group), side.registry).can, group.arrays)):
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
    known.update(map(id, gc.get_referents(*_units(group, survey))))
    return any(count > known[key] for key, count in references(group.inner).items())


def is_plain(obj: Any) -> bool:
    """Say whether loading ``obj`` never reads what it refers to.

    A pinned object has its old content until the commit, so nobody may look into it before: no
    constructor that iterates over an argument, no hash of an attribute.
    """
    if type(obj) in PLAIN:
        return True
    if is_array(obj) or is_scalar(type(obj)) or is_row(type(obj)):
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


def _owner(view: memoryview) -> Any:
    """Return the array whose memory a packed buffer is."""
    return getattr(view.obj, "base", None)
