"""Which slots are whose where a lease has several pods."""

from hypothesis import given
from hypothesis import strategies as st

from gpulease.providers.kubernetes.observed.pods import Part, devices_of, granted_node, slots_of
from tests.providers.kubernetes.server_pods import lease


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_each_node_has_an_equal_part_in_the_order_of_the_ranks(nodes, each, data):
    devices = tuple(f"n{n // each}/gpu/{n % each}" for n in range(nodes * each))
    held = lease(count=nodes * each, nodes=nodes, devices=devices)
    parts = slots_of(held)
    assert list(parts) == [Part(held.id, held.attempt, rank) for rank in range(nodes)]
    assert {len(slots) for slots in parts.values()} == {each}
    assert [granted_node(held, rank) for rank in range(nodes)] == [f"n{k}" for k in range(nodes)]
    assert devices_of(parts, held.id, held.attempt, nodes) == devices
    missing = data.draw(st.sampled_from(list(parts)))
    bound = {part: slots for part, slots in parts.items() if part != missing}
    assert devices_of(bound, held.id, held.attempt, nodes) == (), "not yet all of them"


def test_who_was_granted_nothing_yet_is_nowhere():
    waits = lease(count=4, nodes=2, devices=())
    assert set(slots_of(waits).values()) == {()}
    assert granted_node(waits, 1) == ""
