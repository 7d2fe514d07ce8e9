"""The formula of shares, against published examples and its properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy.shares import Claim, shares, weighed

MANY = 10_000


def divide(units, claims):
    return shares(units, list(claims))[0]


def target(units, claims):
    return shares(units, list(claims))[1]


def test_weights_of_cohorts_as_kueue_publishes_them():
    """KEP-1714, story 3: 300 GPUs, two equal cohorts, in one of them three queues of 1 : 1 : 3."""
    cohorts = divide(300, [Claim("c1", 0, 1, MANY), Claim("c2", 0, 1, MANY)])
    assert cohorts == {"c1": 150, "c2": 150}
    queues = [Claim("1a", 0, 1, MANY), Claim("1b", 0, 1, MANY), Claim("1c", 0, 3, MANY)]
    assert divide(cohorts["c1"], queues) == {"1a": 30, "1b": 30, "1c": 90}


def test_quota_first_then_what_is_over_by_weight_as_kai_describes_it():
    """Two phases: deserved quota whatever the weight, then the surplus by over-quota weight."""
    queues = [Claim("a", 2, 1, MANY), Claim("b", 4, 3, MANY), Claim("c", 0, 0, MANY)]
    assert divide(10, queues) == {"a": 3, "b": 7, "c": 0}
    # Who has all it asked for gets no more; it goes to the others.
    assert divide(10, [Claim("a", 2, 1, MANY), Claim("b", 4, 3, 5)]) == {"a": 5, "b": 5}


@pytest.mark.parametrize(
    ("used", "strength", "expected"),
    [
        # KAI's time-aware fairness: P = max(W + k (W - U), 0), of two queues of equal weight.
        ({"a": 0.0, "b": 0.0}, 1.0, {"a": 1.0, "b": 1.0}),
        ({"a": 0.24, "b": 0.0}, 1.0, {"a": 0.76, "b": 1.0}),
        ({"a": 0.24, "b": 0.0}, 0.5, {"a": 0.63, "b": 0.75}),
        # Here nobody falls below a tenth of their own weight.
        ({"a": 1.0, "b": 0.0}, 1.0, {"a": 0.05, "b": 1.0}),
    ],
)
def test_past_use_changes_weights_as_kai_publishes_it(used, strength, expected):
    assert weighed({"a": 1, "b": 1}, used, strength) == pytest.approx(expected)


def test_guarantees_above_what_is_there_are_cut_in_proportion():
    assert divide(3, [Claim("a", 4, 1, MANY), Claim("b", 2, 1, MANY)]) == {"a": 2, "b": 1}


def test_what_weighs_nothing_gets_what_nobody_else_wants():
    assert divide(5, [Claim("a", 0, 1, 3), Claim("b", 0, 0, MANY)]) == {"a": 3, "b": 2}


claims = st.lists(
    st.builds(
        lambda guarantee, weight, demand: (guarantee, weight, demand),
        st.integers(0, 6),
        st.sampled_from([0, 0.5, 1, 1, 2, 3.7, 90]),
        st.integers(0, 25),
    ),
    min_size=1,
    max_size=12,
).map(lambda rows: [Claim(f"p{n:02}", *row) for n, row in enumerate(rows)])


@given(claims, st.integers(0, 60))
def test_everything_is_given_that_somebody_wants_and_nothing_else(siblings, units):
    whole = divide(units, siblings)
    assert sum(whole.values()) == min(units, sum(each.demand for each in siblings))
    assert all(0 <= whole[each.name] <= each.demand for each in siblings)


@given(claims, st.integers(0, 60))
def test_proportion_each_share_is_within_one_unit_of_its_target(siblings, units):
    whole, exact = divide(units, siblings), target(units, siblings)
    assert all(abs(whole[each.name] - exact[each.name]) < 1 for each in siblings)


@given(claims, st.integers(0, 60))
def test_a_unit_more_takes_none_from_anybody(siblings, units):
    """House monotone: a node that joins never costs a project a GPU."""
    before, after = divide(units, siblings), divide(units + 1, siblings)
    assert all(after[each.name] >= before[each.name] for each in siblings)


@given(claims, st.integers(0, 60))
def test_guarantees_come_first(siblings, units):
    whole = divide(units, siblings)
    own = {each.name: min(each.guarantee, each.demand) for each in siblings}
    if sum(own.values()) <= units:
        assert all(whole[name] >= units_of for name, units_of in own.items())


@given(claims, st.integers(0, 60), st.sampled_from(["capacity", "weight", "guarantee"]))
def test_the_target_is_monotone(siblings, units, what):
    first = siblings[0]
    more = {
        "capacity": first,
        "weight": Claim(first.name, first.guarantee, first.weight + 1.5, first.demand),
        "guarantee": Claim(first.name, first.guarantee + 1, first.weight, first.demand),
    }[what]
    units_then = units + (what == "capacity")
    before = target(units, siblings)[first.name]
    after = target(units_then, [more, *siblings[1:]])[first.name]
    assert after >= before - 1e-6


@given(claims, st.integers(0, 60), st.randoms(use_true_random=False))
def test_the_order_of_the_listing_does_not_matter(siblings, units, random):
    shuffled = list(siblings)
    random.shuffle(shuffled)
    assert divide(units, shuffled) == divide(units, siblings)
