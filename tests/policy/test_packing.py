"""Mixed kinds of a pool are packed: a small request leaves what is good for more.

The property, over whatever mixture of devices and machines: a fraction takes no device that a whole
card's class could have while one is free that only fractions can use.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy import fitting
from gpulease.policy.model import Device, GPUClass, Start
from gpulease.policy.planner import plan
from tests.policy.build import OUTS, policy, request, snapshot
from tests.policy.mutants import without_shrinking

SHARES = ("fraction",)
BOTH = ("fraction", "whole")
MIXED = policy(
    classes=tuple(GPUClass(name, "cards", max_count=4, time_outs=OUTS) for name in BOTH),
    default_class="whole",
)
devices = st.lists(
    st.tuples(st.sampled_from([SHARES, BOTH, None]), st.integers(0, 2)), min_size=1, max_size=8
).map(
    lambda found: tuple(
        Device(f"GPU-{n}", "cards", node=f"n{node}", serves=serves)
        for n, (serves, node) in enumerate(found)
    )
)


def granted(free, *requests):
    """Return request -> the devices that one plan grants it."""
    steps = plan(snapshot(list(requests), free, policy=MIXED))
    return {step.lease_id: step.devices for step in steps if isinstance(step, Start)}


@given(free=devices, fractions=st.integers(1, 8))
def test_a_fraction_spoils_no_whole_card_while_another_would_do(free, fractions):
    asked = [request(n, gpu_class="fraction") for n in range(fractions)]
    kinds = {device.uuid: device.serves for device in free}
    taken = [uuid for found in granted(free, *asked).values() for uuid in found]
    only = sum(serves == SHARES for serves in kinds.values())
    assert len(taken) == min(fractions, len(free))
    assert sum(kinds[uuid] == SHARES for uuid in taken) == min(fractions, only)


@given(free=devices)
def test_whoever_asks_for_a_whole_card_after_a_fraction_still_gets_it(free):
    fraction, whole = request(1, gpu_class="fraction"), request(2, gpu_class="whole")
    found = granted(free, fraction, whole)
    cards = sum(device.serves != SHARES for device in free)
    assert ("r2" in found) == (cards > (cards == len(free)))


@pytest.mark.parametrize(
    "rule",
    [
        test_a_fraction_spoils_no_whole_card_while_another_would_do,
        test_whoever_asks_for_a_whole_card_after_a_fraction_still_gets_it,
    ],
)
def test_a_mutant_to_which_all_devices_are_alike_is_found(rule, monkeypatch):
    monkeypatch.setattr(fitting, "versatility", lambda _devices: {})
    with pytest.raises(AssertionError):
        without_shrinking(rule, monkeypatch)()
