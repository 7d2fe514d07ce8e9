"""What each device does, for whom and why, as the map of devices shows it."""

from dataclasses import replace
from typing import get_args

from gpulease.policy import capacity as dividing
from gpulease.policy.model import Snapshot
from gpulease.service.leases.device_map import Use, device_map
from tests.policy.build import (
    active,
    busy,
    cards,
    draining,
    idle,
    quiet,
    request,
    snapshot,
    starting,
    warned,
)
from tests.policy.reservations.build import window


def uses(view: Snapshot) -> list[tuple[str, str]]:
    return [(each["use"], each["user"]) for each in device_map(view)]


def test_every_use_of_a_device_is_told_with_who_has_it() -> None:
    names = [device.uuid for device in cards(13)]
    leases = [
        active(0, names[0]),
        active(1, names[1]),
        active(2, names[2]),
        active(3, names[3]),
        replace(warned(4), devices=(names[4],)),
        replace(draining(5), devices=(names[5],)),
        starting(6, names[6]),
    ]
    there = list(cards(13))
    there[7] = replace(there[7], healthy=False)
    there[8] = replace(there[8], lost=True)
    there[9] = replace(there[9], occupied_by="foreign")
    evidence = {"r0": busy(), "r1": quiet(10), "r2": idle(10)}
    view = snapshot(leases, tuple(there), evidence, windows=(window(start=-60.0, seats=1),))
    pods = {"": ["t4", "of another pool"], "elsewhere": ["t4"]}
    found = [(each["use"], each["user"]) for each in device_map(view, pods)]
    assert found == [
        ("busy", "user0"), ("quiet", "user1"), ("idle", "user2"), ("unknown", "user3"),
        ("warned", "user4"),
        ("draining", "user5"), ("starting", "user6"), ("quarantined", ""), ("lost", ""),
        ("occupied", ""), ("ready", ""), ("free", ""), ("reserved", ""),
    ]  # fmt: skip
    assert {use for use, _ in found} == set(get_args(Use)), "one that is missing here is untested"
    whys = [each["why"] for each in device_map(view, pods)]
    assert whys[-3] == "A pod of the class t4 stands ready on it."
    assert whys[-1] == "It is reserved for “lab” of cs101."
    assert "14:00:30" in whys[4]


def test_a_divided_card_is_a_line_with_the_parts_that_are_in_use_and_the_rest() -> None:
    there = tuple(dividing.with_parts(cards(2), {"cards": 10}))
    mine = active(0, devices=tuple(dividing.parts_of("GPU-0", 10)[:7]), count=7, card_parts=10)
    less = starting(1, devices=tuple(dividing.parts_of("GPU-0", 10)[8:9]), card_parts=10)
    found = device_map(snapshot([mine, less], there, {"r0": busy()}))
    assert [(each["card"], each["use"], each["user"], each["percent"]) for each in found] == [
        ("GPU-0", "busy", "user0", 70), ("GPU-0", "free", "", 20),
        ("GPU-0", "starting", "user1", 10), ("GPU-1", "free", "", 100),
    ]  # fmt: skip
    assert len({each["uuid"] for each in found}) == 4
    assert "percent" not in device_map(snapshot([], cards(1)))[0]


def test_what_was_given_up_for_somebody_is_kept_for_them() -> None:
    gone = replace(draining(0), nominated_for="r9")
    view = snapshot([gone, request(9)], cards(2))
    assert uses(view)[0] == ("draining", "user0")
