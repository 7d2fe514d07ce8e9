"""What is over and lives on is told to an admin, and nothing else is done about it."""

from dataclasses import replace
from datetime import UTC, datetime

from gpulease.policy import document
from gpulease.policy.model import Alert, Device, Lease, LeaseState, Observed, Snapshot
from gpulease.policy.planner import plan

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
TEXT = """
pools: {p: {}}
classes: {any: {pool: p}}
default_class: any
"""


def test_a_stuck_lease_is_an_alert_until_it_is_gone_and_its_device_is_not_given_on():
    over = Lease(
        "L", "stu", "", "any", 1, (NOW, 1), NOW, state=LeaseState.ENDED, devices=("G",), attempt=1
    )
    waits = Lease("M", "eve", "", "any", 1, (NOW, 2), NOW)
    left = Device("G", "p", healthy=False, occupied_by="L")
    snapshot = Snapshot(
        now=NOW,
        policy=document.parse(TEXT, 1),
        devices=(left,),
        leases=(over, waits),
        observed={"L": Observed("L", 1, left=(41, 42))},
        evidence={},
        capacity_known=True,
    )
    alerts = [each for each in plan(snapshot) if isinstance(each, Alert)]
    assert [(each.lease_id, each.reason) for each in alerts] == [("L", "stuck")]
    assert "Processes 41, 42 of lease L (stu) live on" in alerts[0].sentence
    assert ": G is out of service." in alerts[0].sentence
    assert not [each for each in plan(snapshot) if getattr(each, "devices", ())]
    gone = replace(snapshot, observed={}, devices=(replace(left, healthy=True, occupied_by=None),))
    granted = [each for each in plan(gone) if getattr(each, "devices", ())]
    assert [(each.lease_id, each.devices) for each in granted] == [("M", ("G",))]
