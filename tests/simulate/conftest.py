"""Holds the planner to its promises in every replay."""

import pytest

from gpulease.policy.explanation.forecast import ExpectedWaits
from gpulease.policy.planner import plan
from gpulease.simulate import world
from tests.simulate.invariants import check_plan, check_state

#: Seconds by which a step may be late: a look, and the grain of time before and after it.
SLACK = world.LOOK + 2.0


@pytest.fixture(autouse=True, scope="package")
def promises():
    """Check each plan of a replay, and what stands once it is recorded."""

    def planned(view):
        actions = plan(view)
        check_plan(view, actions)
        return actions

    class Checked(ExpectedWaits):
        def look(self, snapshot, *told):
            check_state(snapshot, SLACK)
            return super().look(snapshot, *told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "plan", planned)
        patch.setattr(world, "ExpectedWaits", Checked)
        yield
