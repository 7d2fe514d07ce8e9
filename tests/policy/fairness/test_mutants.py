"""Each promise of the shares is held by a rule: where that is broken, the promise's test fails.

The broken rules are here; the promises stand with the tests themselves.
"""

from collections import Counter

import pytest

from gpulease.policy import shares
from gpulease.policy.fairness import _Side
from gpulease.policy.reclaim import over_quota
from tests.policy.build import NOW
from tests.policy.fairness import test_division as whole
from tests.policy.fairness import test_properties as sites
from tests.policy.mutants import without_shrinking

BORROWED = over_quota.Borrowed
ROUNDS = shares._rounds
LEVEL = shares._level


def nobody(*_arguments):
    """No side may ever take."""
    return


def anybody(*_arguments):
    """Every side may take, also what is another one's share."""
    return over_quota._Right(by_guarantee=True, by_share=True, lacks=True)


def always(*_arguments):
    return True


def greedy(capacity, parts):
    """Who comes first in the alphabet gets all that it wants."""
    given = {}
    for part in parts:
        given[part.name] = min(part.most, capacity)
        capacity -= given[part.name]
    return given


def largest_remainder(capacity, parts):
    """The usual rounding: a unit more may cost somebody one."""
    exact = LEVEL(float(capacity), parts)
    given = {name: int(units) for name, units in exact.items()}
    left = capacity - sum(given.values())
    by_rest = sorted(exact, key=lambda name: (given[name] - exact[name], name))
    return Counter(given) + Counter(by_rest[:left]) + Counter(dict.fromkeys(given, 0)) | given


def by_weight_alone(claims):
    """Guarantees are left out."""
    return ROUNDS([each._replace(guarantee=0) for each in claims])


def light_first(capacity, parts):
    """The less a sibling weighs the more it gets."""
    return LEVEL(capacity, [part._replace(weight=1 / part.weight) for part in parts])


def guarantees_cost(claims):
    """Who has more guaranteed weighs less by far, and gets no more."""
    return ROUNDS(
        [x._replace(guarantee=0, weight=x.weight / (1 + x.guarantee) ** 3) for x in claims]
    )


def by_name(self):
    """The same project is always the next, whatever it has had."""
    return False, 0.0, NOW, 0, self.node.name


def any_time(_snapshot, _lease):
    """A lease may go before its minimum runtime is over."""
    return True


#: The promise's test, where the rule stands that holds it, its name, and what stands there instead.
MUTANTS = [
    (sites.test_a_guarantee_is_restored_in_bounded_time_however_busy_the_borrower_is,
     BORROWED, "_right", nobody),
    (sites.test_a_guarantee_is_restored_in_bounded_time_however_busy_the_borrower_is,
     BORROWED, "_first", nobody),
    (sites.test_where_more_is_guaranteed_than_there_is_what_comes_free_goes_to_who_has_least,
     _Side, "key", by_name),
    (sites.test_busy_projects_come_to_their_shares_and_then_nothing_moves_to_and_fro,
     BORROWED, "_right", anybody),
    (sites.test_busy_projects_come_to_their_shares_and_then_nothing_moves_to_and_fro,
     BORROWED, "_right", nobody),
    (sites.test_busy_projects_come_to_their_shares_and_then_nothing_moves_to_and_fro,
     shares, "_in_units", greedy),
    (sites.test_nobody_starves, _Side, "key", by_name),
    (sites.test_with_decay_a_device_changes_hands_at_most_once_a_minimum_runtime,
     over_quota, "may_go", any_time),
    (sites.test_with_decay_a_device_changes_hands_at_most_once_a_minimum_runtime,
     BORROWED, "_right", nobody),
    (whole.test_everything_is_given_that_somebody_wants_and_nothing_else,
     shares, "_in_units", lambda capacity, parts: greedy(capacity - 1, parts)),
    (whole.test_proportion_each_share_is_within_one_unit_of_its_target,
     shares, "_in_units", greedy),
    (whole.test_a_unit_more_takes_none_from_anybody, shares, "_in_units", largest_remainder),
    (whole.test_guarantees_come_first, shares, "_rounds", by_weight_alone),
    (whole.test_the_target_is_monotone, shares, "_level", light_first),
    (whole.test_the_target_is_monotone, shares, "_rounds", guarantees_cost),
]  # fmt: skip


@pytest.mark.parametrize(
    ("promise", "where", "name", "mutant"),
    MUTANTS,
    ids=[f"{promise.__name__[5:40]}-{mutant.__name__}" for promise, _, _, mutant in MUTANTS],
)
def test_a_promise_is_not_kept_by_a_broken_rule(promise, where, name, mutant, monkeypatch):
    monkeypatch.setattr(where, name, mutant)
    if mutant is anybody:  # what is looked at first, so that most need not be looked at closely
        monkeypatch.setattr(where, "may_take", always)
    with pytest.raises(AssertionError):
        without_shrinking(promise, monkeypatch)()
