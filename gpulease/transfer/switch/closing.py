"""The rule that a group never travels without the units it needs, and a unit never alone.

Owns what that takes off a shipment.
"""

from __future__ import annotations

from gpulease.transfer.values.groups import Group
from gpulease.transfer.values.stays import leaves

from .looking import Look


def close(state: Look) -> None:  # noqa: C901 - a fixed point reads best in one piece
    """Drop groups whose units do not travel and are not there, until nothing changes."""
    peer = state.side.ledger.peer_units

    def there(oid: str) -> bool:
        group = state.group_of_unit(oid)
        if group is None:
            return oid in peer
        return id(group) in state.chosen or (id(group) in state.same and oid in peer)

    for group in state.survey.groups:  # a unit the receiver lost is sent again
        if id(group) in state.same and any(oid not in peer for oid in group.oids):
            state.same.discard(id(group))
            if id(group) in state.packed:  # else a part of it is newer there
                state.chosen.add(id(group))
    changed = True
    while changed:
        changed = False
        for group in state.survey.groups:
            if id(group) not in state.chosen and id(group) not in state.same:
                continue
            packed = state.packed.get(id(group))
            missing = [oid for oid in (packed or group).needs if not there(oid)]
            if not missing:
                continue
            for oid in missing:
                why = _unit_reason(state, state.group_of_unit(oid))
                state.stays.setdefault(id(group), why)
                for name in group.names:
                    state.side.ledger.blocked.setdefault(name, why)
            state.chosen.discard(id(group))
            state.same.discard(id(group))
            changed = True


def leave_unneeded(state: Look) -> None:
    """Do not send units that nothing the receiver gets refers to: there they would be garbage.

    They belong to something that stays here, a thread say, and would be sent again each time.
    """
    travels = state.chosen | state.same
    wanted = state.required | state.soft
    peer = state.side.ledger.peer_units
    # What the receiver has of them already is kept as it is here, with what it refers to.
    stay = {
        id(group)
        for group in state.survey.groups
        if group.names
        or (id(group) in wanted and not _is_leaf(state, group))
        or not peer.isdisjoint(group.oids)
    }
    needed: set[str] = set()
    first = stay & travels  # once: there may be thousands
    queue = [g for g in state.survey.groups if id(g) in first]
    while queue:
        group = queue.pop()
        fresh = (state.packed.get(id(group)) or group).needs - needed
        needed |= fresh
        queue += [found for oid in fresh if (found := state.group_of_unit(oid)) is not None]
    for group in state.survey.groups:
        if id(group) not in stay and needed.isdisjoint(group.oids):
            state.chosen.discard(id(group))


def _is_leaf(state: Look, group: Group) -> bool:
    """Say whether it stands for what stays here: whoever has it may leave it out of its pickle."""
    return len(group.roots) == 1 and leaves.stays(state.survey.units.get(group.oids[0]))


def _unit_reason(state: Look, group: Group | None) -> str:
    if group is None:
        return ""
    blocked = state.side.ledger.blocked
    named = next((blocked[name] for name in group.names if name in blocked), "")
    return named or state.stays.get(id(group), "")
