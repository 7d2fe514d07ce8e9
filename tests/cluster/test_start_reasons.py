"""Pods that cannot start on a real cluster, and what is read from them while they fail."""

from datetime import UTC, datetime, timedelta

import pytest

from gpulease.providers.kubernetes.observed.reasons import Reading, read_pod, read_refusal
from testcluster.api import ApiError, Object
from testcluster.cluster import Cluster
from testcluster.starts import watch_starts
from tests.helpers import wait_for
from tests.providers.kubernetes.failing_pods import CASES, Case, pod_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_each_pod_that_cannot_start_says_why(cluster: Cluster, namespace: str) -> None:
    watch = watch_starts(cluster.api, namespace)
    assert {case.name: watch.last[case.name].failed for case in CASES} == {
        case.name: case.failed for case in CASES
    }
    for case in CASES:
        assert case.words in watch.last[case.name].detail
    # What passes quickly may be missed; these last long enough to be seen.
    for name in ("all-in-use", "no-such-node", "not-mounted", "runs"):
        case = next(each for each in CASES if each.name == name)
        assert case.stage in watch.stages[name]


def test_a_quota_and_a_rule_of_the_cluster_are_told_apart(cluster: Cluster, namespace: str) -> None:
    spec = {"hard": {"requests.nvidia.com/gpu": "1"}}
    metadata = {"name": "gpus", "namespace": namespace}
    cluster.api.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
    )
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/gpus"
    wait_for(lambda: cluster.api.get(path).get("status", {}).get("used"), 120, "quota counted")
    two = Case("two", "", container={"resources": {"limits": {"nvidia.com/gpu": "2"}}})
    reading = refused(cluster, pod_of(two, namespace))
    assert (reading.failed, reading.numbers["limited"]) == (
        "quota_exceeded",
        "requests.nvidia.com/gpu=1",
    )
    unranked = Case("unranked", "", pod={"priorityClassName": "none-such"})
    assert refused(cluster, pod_of(unranked, namespace)).failed == "admission_refused"


def test_a_volume_that_does_not_attach_is_told_from_its_event(
    cluster: Cluster, namespace: str
) -> None:
    """A node without a kubelet takes the pod, and the event is posted by hand."""
    node = f"none-{namespace}"
    cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    try:
        created = cluster.api.create(pod_of(Case("apart", "", pod={"nodeName": node}), namespace))
        tried = datetime.now(UTC) - timedelta(seconds=25)
        stamp = tried.strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": "Pod", "namespace": namespace, "name": "apart"}
        cluster.api.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "apart.1", "namespace": namespace},
                "involvedObject": about | {"uid": created["metadata"]["uid"]},
                "reason": "FailedAttachVolume",
                "message": "Multi-Attach error: the volume is used by pod jupyter-jane",
                "type": "Warning",
                "source": {"component": "attachdetach-controller"},
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
            }
        )
        events = cluster.api.items(f"/api/v1/namespaces/{namespace}/events")
        pod = cluster.api.pod(namespace, "apart")
        reading = read_pod(pod, events, now=datetime.now(UTC))
        assert (reading.failed, reading.numbers["seconds"] >= 25) == ("volume_failed", True)
        assert "Multi-Attach" in reading.detail
        early = read_pod(pod, events, now=tried + timedelta(seconds=10))
        assert (early.stage, early.failed) == ("starting_container", "")
    finally:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/apart", options)
        cluster.api.delete(f"/api/v1/nodes/{node}")


def refused(cluster: Cluster, body: Object) -> Reading:
    with pytest.raises(ApiError) as error:
        cluster.api.create(body)
    return read_refusal(error.value.status, error.value.reason, error.value.message)
