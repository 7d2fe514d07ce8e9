"""What the cluster's own queues are told, and what a pod that one of them holds back waits for."""

from datetime import UTC, datetime, timedelta

import pytest

from gpulease.policy.model import GPUClass
from gpulease.policy.pods import ClusterQueue, PodAsk, QueueEngine
from gpulease.providers.kubernetes.observed.reasons import StartTimeouts, read_pod
from gpulease.providers.kubernetes.pod_resources.ask import (
    group_of,
    pod_fields,
    taken_back,
    waiting,
    workload_of,
)

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
GATE = {"name": "kueue.x-k8s.io/admission"}
KUEUE = {"kueue.x-k8s.io/queue-name": "students"}


def pod(gates=(GATE,), labels=KUEUE, conditions=(), node="", uid="u1", age=3600, **meta):
    created = (NOW - timedelta(seconds=age)).isoformat()
    spec = {"schedulingGates": list(gates)} if gates else {}
    return {
        "metadata": {"uid": uid, "labels": labels, "creationTimestamp": created, **meta},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }


def condition(kind, status="False", reason="", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def workload(uid="w1", owner="u1", *conditions, queue="students", priority=0, since="1", **spec):
    return {
        "metadata": {
            "uid": uid,
            "name": uid,
            "namespace": "servers",
            "creationTimestamp": since,
            "ownerReferences": [{"uid": owner}],
        },
        "spec": {"queueName": queue, "priority": priority, **spec},
        "status": {"conditions": list(conditions)},
    }


NO_QUOTA = condition("QuotaReserved", reason="Pending", message="insufficient unused quota")
STOPPED = condition("QuotaReserved", reason="Inadmissible", message="ClusterQueue is stopped")
RESERVED = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved")
PREEMPTED = condition("Evicted", "True", "Preempted", "Preempted to accommodate a workload")


@pytest.mark.parametrize(
    ("engine", "labels", "scheduler"),
    [
        (QueueEngine.KUEUE, {"kueue.x-k8s.io/queue-name": "students"}, ""),
        (QueueEngine.KAI, {"kai.scheduler/queue": "students"}, "kai-scheduler"),
    ],
)
def test_a_queue_is_told_in_its_own_words(engine, labels, scheduler):
    ask = PodAsk(queue=ClusterQueue(engine, "students"), extra_labels=(("site/a", "b"),))
    said = pod_fields(GPUClass("card", "cards", pod=ask), 1)
    assert said.labels == {"site/a": "b", **labels}
    assert said.scheduler == scheduler


def test_the_pods_of_several_nodes_are_one_group_of_kueues_and_of_nobody_else():
    line = ClusterQueue(QueueEngine.KUEUE, "students")
    for none in (group_of(None, "a-1", 2), group_of(line, "a-1", 1)):
        assert not none.labels
        assert not none.annotations
    group = group_of(line, "a-1", 2)
    assert group.labels == {"kueue.x-k8s.io/pod-group-name": "a-1"}
    assert group.annotations == {
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "kueue.x-k8s.io/retriable-in-group": "false",
    }
    assert not group_of(ClusterQueue(QueueEngine.KAI, "students"), "a-1", 2).labels


def test_a_scheduler_that_the_class_names_is_kept():
    ask = PodAsk(queue=ClusterQueue(QueueEngine.KAI, "students"), scheduler="ours")
    assert pod_fields(GPUClass("card", "cards", pod=ask), 1).scheduler == "ours"


@pytest.mark.parametrize(
    ("conditions", "said", "shown"),
    [
        ((), "in_cluster_queue", "not looked at yet"),
        ((NO_QUOTA,), "cluster_quota", "insufficient unused quota"),
        ((STOPPED,), "cluster_queue_stopped", "ClusterQueue is stopped"),
        ((NO_QUOTA, PREEMPTED), "cluster_queue_again", "Preempted to accommodate"),
        ((RESERVED,), "in_cluster_queue", "Quota reserved"),
    ],
)
def test_what_kueue_says_is_what_is_waited_for(conditions, said, shown):
    found = waiting(pod(), [workload("w1", "u1", *conditions)])
    assert found.said == said
    assert shown in found.detail


def test_a_workload_that_is_switched_off_says_so():
    found = waiting(pod(), [workload("w1", "u1", NO_QUOTA, active=False)])
    assert found.said == "cluster_queue_stopped"


def test_who_waits_before_it_in_the_same_queue_is_counted():
    others = [
        workload("earlier", "u2", NO_QUOTA, since="0"),
        workload("later", "u3", NO_QUOTA, since="2"),
        workload("later, of higher priority", "u4", NO_QUOTA, since="2", priority=10),
        workload("in", "u5", RESERVED, since="0"),
        workload("over", "u6", condition("Finished", "True"), since="0"),
        workload("of another queue", "u7", NO_QUOTA, since="0", queue="staff"),
    ]
    own = workload("w1", "u1", NO_QUOTA, since="1")
    assert waiting(pod(), [*others, own]).ahead == 2


def test_without_its_workload_the_gate_is_named():
    found = waiting(pod(), [workload("w2", "somebody")])
    assert found.said == "in_cluster_queue"
    assert "kueue.x-k8s.io/admission" in found.detail
    assert found.ahead is None
    assert workload_of(pod(), [workload("w2", "somebody")]) is None


@pytest.mark.parametrize(
    "free",
    [
        pod(gates=()),
        pod(gates=(), node="node1"),
        pod(deletionTimestamp="now"),
        pod(gates=(), labels={"kai.scheduler/queue": "q"}, node="node1"),
    ],
)
def test_what_nothing_holds_back_does_not_wait_in_a_queue(free):
    assert waiting(free) is None


def test_a_pod_of_kai_waits_until_it_is_bound():
    why = condition("PodScheduled", reason="Unschedulable", message="over quota")
    found = waiting(pod(gates=(), labels={"kai.scheduler/queue": "q"}, conditions=(why,)))
    assert found.said == "in_cluster_queue"
    assert "over quota" in found.detail


def test_a_pod_in_a_queue_never_fails_however_long_it_waits():
    gated = condition("PodScheduled", reason="SchedulingGated", message="Scheduling is blocked")
    found = read_pod(pod(conditions=(gated,)), now=NOW, bounds=StartTimeouts(bind=10))
    assert (found.stage, found.failed, found.said) == ("cluster_queue", "", "in_cluster_queue")


def test_its_time_to_be_bound_begins_when_the_queue_lets_it_go():
    free = pod(gates=())
    just = read_pod(
        free, now=NOW, bounds=StartTimeouts(bind=10), held_until=NOW - timedelta(seconds=5)
    )
    assert (just.stage, just.failed) == ("scheduling", "")
    long = read_pod(
        free, now=NOW, bounds=StartTimeouts(bind=10), held_until=NOW - timedelta(seconds=15)
    )
    assert long.failed == "capacity_taken"


def test_a_pod_that_kueue_takes_back_was_preempted_whatever_else_is_seen():
    why = condition("TerminationTarget", "True", "WorkloadEvictedDueToPreempted", "for a workload")
    taken = pod(gates=(), conditions=(why,), node="node1")
    assert taken_back(taken) == "for a workload"
    taken["status"]["phase"] = "Failed"
    found = read_pod(taken, now=NOW)
    assert (found.failed, found.detail) == ("queue_preempted", "for a workload")


def test_other_ends_are_no_preemption():
    why = condition("TerminationTarget", "True", "WorkloadDeleted", "Workload is deleted")
    assert taken_back(pod(conditions=(why,))) == ""
    assert taken_back(pod()) == ""
