"""GPUs that no class offers are told where a class waits for a pool that is not there."""

from datetime import UTC, datetime

import pytest

from gpulease.policy import document
from gpulease.policy.model import Alert, Device, Snapshot
from gpulease.policy.planner import plan

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def alerts(pools: str, classes: str, *there: str, known: bool = True) -> list[str]:
    devices = tuple(Device(f"G{n}", pool) for n, pool in enumerate(there))
    policy = document.parse(f"pools: {pools}\nclasses: {classes}\n", 1)
    snapshot = Snapshot(
        now=NOW,
        policy=policy,
        devices=devices,
        leases=(),
        observed={},
        evidence={},
        capacity_known=known,
    )
    return [each.sentence for each in plan(snapshot) if isinstance(each, Alert)]


def test_a_pool_by_another_name_is_told():
    (said,) = alerts("{cards: {}}", "{a: {pool: cards}}", "t4", "t4")
    assert "draw on pool cards, where there are no GPUs" in said
    assert "pool t4, where there are 2 GPUs" in said
    assert alerts("{cards: {}}", "{a: {pool: cards}}", "t4", known=False) == []


@pytest.mark.parametrize(
    ("pools", "classes", "there"),
    [
        ("{t4: {}}", "{a: {pool: t4}}", ["t4", "display"]),  # kept back on purpose
        ("{t4: {}, big: {}}", "{a: {pool: t4}, b: {pool: big}}", ["t4"]),  # its node is away
        ("{big: {elastic: {max: 2, provision_time: 5m}}}", "{b: {pool: big}}", ["display"]),
        (
            "{big: {elastic: {max: 2, provision_time: 5m}}, t4: {}}",
            "{b: {pool: big}, a: {pool: t4}}",
            ["big"],
        ),
    ],
)
def test_what_may_be_meant_is_not(pools: str, classes: str, there: list[str]):
    assert alerts(pools, classes, *there) == []
