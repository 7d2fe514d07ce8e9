"""What the benchmarks read from the API server, on events as it sends them."""

import pytest

pytest.importorskip("kubernetes")

from benchmarks.kubernetes.pods import steps_of


def pod(phase: str, node: str = "", deleting: bool = False) -> dict:
    metadata = {"name": "p", "uid": "1"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("kind", "seen", "steps"),
    [
        ("ADDED", pod("Pending"), {"created"}),
        ("MODIFIED", pod("Pending", "node1"), {"created", "scheduled"}),
        ("MODIFIED", pod("Running", "node1"), {"created", "scheduled", "running"}),
        ("MODIFIED", pod("Succeeded", "node1"), {"created", "scheduled", "running", "over"}),
        (
            "MODIFIED",
            pod("Running", "node1", deleting=True),
            {"created", "scheduled", "running", "deleting"},
        ),
        (
            "DELETED",
            pod("Failed", "node1", deleting=True),
            {"created", "scheduled", "running", "over", "deleting", "gone"},
        ),
    ],
)
def test_each_step_of_a_pod_is_seen(kind, seen, steps):
    assert set(steps_of(kind, seen)) == steps
