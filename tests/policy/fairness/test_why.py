"""What an admin reads of a decision between projects: past use, and what is left of a budget."""

from gpulease.policy.explanation.decision import Decision, decision
from gpulease.policy.model import Lease, PolicyDocument
from gpulease.policy.planner import plan
from gpulease.policy.projects import AtZero, Budget
from tests.policy.build import snapshot
from tests.policy.fairness.build import asks, holds, project, shared

_WEEK = 7 * 86400.0


def why(leases: list[Lease], of: str, policy: PolicyDocument, **changed) -> Decision:
    view = snapshot(leases, 2, policy=policy, **changed)
    lease = next(each for each in view.leases if each.id == of)
    return decision(view, lease, next((x for x in plan(view) if x.lease_id == of), None))


def test_past_use_is_told_in_numbers_beside_that_of_who_wants_as_well():
    policy = shared(project("phys"), project("bio"), project("art"), strength=1)
    leases = [asks(1, "phys"), asks(2, "bio")]
    use = {("phys", "ann", "cards"): _WEEK / 2, ("art", "eve", "cards"): _WEEK / 4}
    found = why(leases, "r1", policy, use=use)
    mine, every = found.numbers["past_use"], found.numbers["past_use_of_all"]
    assert every == mine > 0, "bio has used nothing, and art wants nothing"
    assert f"of the whole pool: {mine:.1%} by phys, {every:.1%} by all" in " ".join(found.words)
    assert "past_use" not in why(leases, "r2", shared(*policy.projects.all), use=use).numbers


def test_a_lease_beyond_its_budget_is_told_of_that_and_of_no_share():
    budget = Budget(10, at_zero=AtZero.BORROW)
    policy = shared(project("phys", guarantee=1, budget=budget), project("bio"), strength=1)
    used = {"spent": {("phys", "ann"): 12.0}, "use": {("phys", "ann", "cards"): _WEEK}}
    lease = holds(0, "phys")
    told = " ".join(why([lease, asks(1, "bio")], lease.id, policy, **used).words)
    assert "Its budget is used up: it has what nobody else wants, and no share there." in told
    assert "Of the project's budget 0.0 of 10 GPU-hours were left." in told
    assert "share of" not in told
    other = why([lease, asks(1, "bio")], "r1", policy, **used)
    assert "Project bio held 0 of a share of 1 there (guaranteed: 0)." in other.words
    assert all("\0" not in each for each in other.words)
