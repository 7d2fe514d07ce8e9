"""What a lease may take of a card that it shares: told apart, warned of, and ended in time."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy import lifecycle
from gpulease.policy.explanation.explain import beyond_share
from gpulease.policy.model import Clear, Drain, EndReason, LeaseState, Warn
from gpulease.policy.planner import plan
from gpulease.policy.quarantine import SLACK, Excess, Tenant, excesses
from tests.policy.build import NOW, OUTS, active, at, busy, policy, snapshot

GIB = 2**30
CARD = 16 * GIB


def tenants(*used, share=4 * GIB, left=None):
    """Leases a, b, ... of one card of 16 GiB, each with what it holds (GiB)."""
    free = CARD - sum(used) * GIB if left is None else left
    return [
        Tenant(name, "card", share, int(held * GIB), int(free))
        for name, held in zip("abcd", used, strict=False)
    ]


def test_who_holds_no_more_than_its_share_is_not_spoken_of():
    assert excesses(tenants(4, 4, 4, 4)) == {}
    assert excesses(tenants(4 * (1 + SLACK), 4)) == {}


def test_more_than_a_share_is_told_and_harms_nobody_while_the_others_have_room():
    assert excesses(tenants(6, 1)) == {"a": Excess(6 * GIB, 4 * GIB, harms=False)}


def test_it_harms_once_the_others_could_not_have_their_shares():
    """13 of 16 GiB: the other one has 1 of its 4, and 2 are left for it."""
    assert excesses(tenants(13, 1)) == {"a": Excess(13 * GIB, 4 * GIB, harms=True)}
    assert not excesses(tenants(12, 1))["a"].harms  # 3 are left, and 3 it lacks


def test_what_nobody_has_on_lease_is_nobodys_harm():
    """Two of four shares are given: what the other two would have may be used meanwhile."""
    assert not excesses(tenants(12, 4))["a"].harms


def test_of_two_beyond_their_share_the_one_that_is_further_harms():
    found = excesses(tenants(8, 6, 1))
    assert {name: each.harms for name, each in found.items()} == {"a": True, "b": False}


def test_without_a_share_nothing_is_beyond_it():
    assert excesses(tenants(13, 1, share=0)) == {}


def test_of_several_cards_the_one_where_it_harms_counts():
    one = tenants(6, 1)
    other = [replace(each, card="other") for each in tenants(13, 1)]
    assert excesses([*one, *other])["a"] == Excess(13 * GIB, 4 * GIB, harms=True)


@given(
    st.lists(st.integers(0, CARD), min_size=1, max_size=8),
    st.integers(0, CARD),
    st.integers(0, CARD // 2),
)
def test_who_is_within_its_share_is_left_alone_and_at_most_one_harms(used, left, share):
    there = [Tenant(str(n), "card", share, held, left) for n, held in enumerate(used)]
    found = excesses(there)
    assert set(found) <= {x.lease for x in there if x.used > x.share}
    assert sum(each.harms for each in found.values()) <= 1
    if sum(max(0, x.share - x.used) for x in there) <= left:
        assert not any(each.harms for each in found.values())


# --- in the plan

HARMING = replace(busy(), taken=13 * GIB, harms_since=at(-60))


def step(lease, evidence, **changed):
    (action,) = plan(snapshot([lease], 1, {lease.id: evidence}, **changed)) or [None]
    return action


def test_who_harms_others_for_so_long_is_warned_however_busy():
    lease = active(0)
    assert step(lease, HARMING) == Warn(
        "r0", "over_share", at(OUTS.warning), EndReason.PREEMPTED, None
    )
    assert step(lease, replace(HARMING, harms_since=at(-59))) is None
    assert step(lease, HARMING, policy=policy(share_harm=61.0)) is None
    assert step(lease, replace(HARMING, harms_since=None)) is None


def test_memory_that_is_freed_in_time_takes_the_warning_back():
    lease = active(0)
    warned = lifecycle.apply(lease, step(lease, HARMING), NOW, OUTS)
    assert step(warned, HARMING) is None
    assert lifecycle.keep_refusal(warned, OUTS) is not None
    assert step(warned, busy()) == Clear("r0", "within_share")
    back = lifecycle.apply(warned, step(warned, busy()), NOW, OUTS)
    assert back.state is LeaseState.ACTIVE


def test_else_it_drains_and_parks_what_cannot_go_home():
    lease = active(0)
    warned = lifecycle.apply(lease, step(lease, HARMING), NOW, OUTS)
    later = NOW + timedelta(seconds=OUTS.warning)
    found = step(warned, HARMING, now=later)
    assert isinstance(found, Drain)
    assert (found.reason, found.end_reason, found.park) == (
        "over_share",
        EndReason.PREEMPTED,
        True,
    )


@pytest.mark.parametrize(
    ("taken", "state", "said"),
    [(6 * GIB, LeaseState.ACTIVE, True), (0, LeaseState.ACTIVE, False),
     (6 * GIB, LeaseState.WARNED, False)],
)  # fmt: skip
def test_an_active_lease_reads_what_it_holds_beyond_its_share(taken, state, said):
    terms = policy()
    shares = replace(terms, classes=(replace(terms.classes[0], memory=4 * GIB),))
    told = beyond_share(active(0, state=state), shares, replace(busy(), taken=taken))
    assert bool(told) is said
    if said:
        assert "6.0 GiB" in told
        assert "4.0 GiB" in told
