"""What was given back counts as taken until a look that began later."""

from __future__ import annotations

from dataclasses import replace

from gpulease.policy.model import Device, LeaseState
from gpulease.service.control_loop.ledger import Unseen
from gpulease.store import Change
from tests.policy.build import active, cards, request, starting


def taken(unseen: Unseen, devices: tuple[Device, ...]) -> list[str]:
    marked = unseen.marked(devices, {each.uuid: each for each in devices})
    return [each.uuid for each in marked if each.occupied_by]


def ended(lease, state=LeaseState.ENDED) -> Change:
    return Change(lease, replace(lease, state=state), "stu", "returned")


def test_it_is_taken_until_a_look_that_began_later_ends():
    unseen, devices = Unseen(), cards(3)
    first, second = starting(1, devices[0].uuid), active(2, devices[1].uuid)
    unseen.moved([ended(first)])
    assert taken(unseen, devices) == [devices[0].uuid]
    unseen.look_begins()
    unseen.moved([ended(second)])
    assert taken(unseen, devices) == [devices[0].uuid, devices[1].uuid]
    unseen.looked()
    assert taken(unseen, devices) == [devices[1].uuid]
    unseen.look_begins()  # which fails
    unseen.look_begins()
    assert taken(unseen, devices) == [devices[1].uuid]
    unseen.looked()
    assert unseen.marked(devices, {}) is devices


def test_a_lease_that_goes_back_to_the_queue_gives_its_device_back_too():
    unseen, devices = Unseen(), cards(1)
    unseen.moved([ended(starting(1, devices[0].uuid), LeaseState.QUEUED)])
    assert taken(unseen, devices) == [devices[0].uuid]


def test_who_only_waited_or_still_holds_gives_nothing_back():
    unseen, devices = Unseen(), cards(2)
    waits, holds = request(1), starting(2, devices[1].uuid)
    unseen.moved([ended(waits), ended(holds, LeaseState.ACTIVE), Change(None, waits, "x", "asked")])
    assert taken(unseen, devices) == []


def test_all_parts_of_a_card_wait_for_the_look_and_say_who_holds_them_already():
    unseen = Unseen()
    parts = tuple(Device(f"GPU-0/{n}", "cards", card="GPU-0", card_parts=3) for n in range(3))
    held = (*parts[:2], replace(parts[2], occupied_by="other"))
    unseen.moved([ended(starting(1, parts[0].uuid))])
    marked = unseen.marked(held, {each.uuid: each for each in held})
    assert [each.occupied_by for each in marked] == ["r1", "r1", "other"]
