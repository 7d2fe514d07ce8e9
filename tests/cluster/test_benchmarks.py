"""What the benchmarks read from the API server and its audit log, and how their stages end."""

import asyncio

import pytest

pytest.importorskip("kubernetes")

from benchmarks.kubernetes.costs import pods_created, rate, requests
from benchmarks.kubernetes.pods import steps_of
from benchmarks.kubernetes.stages import LateError, done, stage
from testcluster.api import ApiError
from testcluster.many.kube import Kube
from testcluster.many.notebooks import delete_all


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


def request(verb: str, resource: str, second: int = 0, query: str = "", **of: str) -> dict:
    return {
        "verb": verb,
        "requestURI": f"/api/v1/namespaces/hub/{resource}{query}",
        "objectRef": {"resource": resource, **of},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second:02d}.000000Z",
    }


def test_pods_a_second_are_those_between_the_first_and_the_last_create():
    events = [
        *(request("create", "pods", second, name=f"p{second}") for second in (4, 0, 2, 1, 3)),
        request("create", "pods", 59, name="p0", subresource="eviction"),
        request("delete", "pods", 50, name="p0"),
        request("create", "pods", 30, name="another"),
        request("create", "pods", 58, "?dryRun=All&fieldManager=gpulease", name="p1"),
    ]
    assert rate(pods_created(events, [f"p{each}" for each in range(5)])) == 1.0
    assert rate(pods_created(events)) == round(5 / 30, 1)
    assert rate([]) == rate([1.0]) == 0.0


def test_writes_and_reads_are_counted_apart():
    events = [request("create", "pods"), request("delete", "pods"), request("watch", "pods")]
    assert requests([*events, request("create", "tokenreviews")], 2) == {
        "writes_per_lease": 1.5,
        "writes": {"create pods": 1, "delete pods": 1, "create tokenreviews": 1},
        "reads": {"watch pods": 1},
    }


async def test_a_stage_that_is_late_says_which_and_how_far_it_came():
    with pytest.raises(LateError, match=r"all there: not in 0 s; 3 of 4 are"):
        await stage("all there", 0.2, lambda: False, lambda: "3 of 4 are")


async def test_work_that_is_late_is_cancelled_and_its_failure_is_told():
    work = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(LateError):
        await done("work", 0.2, work, str)
    with pytest.raises(asyncio.CancelledError):
        await work

    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await done("work", 60.0, asyncio.ensure_future(fails()), str)


async def test_a_stage_that_is_over_returns_at_once():
    assert await stage("nothing", 60.0, lambda: True, str) < 30.0


async def test_pods_that_are_too_many_for_one_delete_are_deleted_again():
    """The API server answers 504 after a minute, with what is left."""
    left = [504, 504, 200]

    class Slow(Kube):
        def __init__(self) -> None:
            """Nobody is connected to."""

        async def request(self, method, path, body=None, **query):
            if (status := left.pop(0)) >= 400:
                raise ApiError(status, {})
            return {}

    await delete_all(Slow(), "jupyterhub", "app=x")
    assert left == []
    left.append(403)
    with pytest.raises(ApiError, match="403"):
        await delete_all(Slow(), "jupyterhub", "app=x")
