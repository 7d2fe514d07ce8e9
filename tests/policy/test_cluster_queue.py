"""Classes that a queue of the cluster's admits: our planner hands over and waits."""

from dataclasses import replace

import pytest

from gpulease.policy import document
from gpulease.policy.explanation.explain import explain
from gpulease.policy.model import Bind, End, EndReason, GPUClass, Progress, Requeue, Start, Wait
from gpulease.policy.planner import plan
from gpulease.policy.pods import ClusterQueue, PodAsk, QueueEngine
from gpulease.policy.reservations.feasibility import allowed_classes
from tests.policy.build import OUTS, active, at, policy, request, seen, snapshot, starting

LINE = ClusterQueue(QueueEngine.KUEUE, "students", max_pending=2)
QUEUED = GPUClass("t4", "cards", max_count=4, time_outs=OUTS, pod=PodAsk(queue=LINE))
POLICY = policy(classes=(QUEUED, GPUClass("slice", "slices")), leases_per_user=2)


def planned(*leases, devices=1, observed=()):
    return plan(snapshot(leases, devices, observed=observed, policy=POLICY))


def waiting(number, **changed):
    return starting(number, devices=(), reason="cluster_queue", stage_since=at(-9000), **changed)


def test_requests_are_handed_over_whatever_is_free():
    first, second = planned(request(1), request(2), devices=0)
    for action, lease_id in ((first, "r1"), (second, "r2")):
        assert isinstance(action, Start)
        assert (action.lease_id, action.devices) == (lease_id, ())


def test_no_more_wait_there_than_the_class_says():
    found = planned(request(1), request(2), request(3), devices=9)
    assert [type(each) for each in found] == [Start, Start, Wait]
    assert found[2].reason == "cluster_queue_full"
    assert planned(waiting(1), waiting(2), request(3)) == [Wait("r3", "cluster_queue_full")]
    # Who is past the queue takes no place in it.
    past = replace(waiting(1), reason="pulling", stage_since=at(-1))
    assert [type(each) for each in planned(past, waiting(2), request(3))] == [Start]


def test_a_person_has_no_more_than_elsewhere():
    own = [request(n, user="ada", server=f"s{n}") for n in (1, 2)]
    held = waiting(3, user="ada", server="s3")
    found = planned(held, *own)
    assert [(type(each), each.reason) for each in found] == [
        (Start, "starting"),
        (Wait, "user_limit"),
    ]


def test_waiting_there_has_no_end_of_ours_and_is_no_failure():
    lease = waiting(1)
    view = seen(lease, connected=False, stage="cluster_queue")
    assert planned(lease, observed=[view]) == []
    begun = starting(1, devices=())
    assert planned(begun, observed=[seen(begun, connected=False, stage="cluster_queue")]) == [
        Progress("r1", "cluster_queue")
    ]


def test_where_it_landed_is_learnt_from_the_cluster():
    lease = waiting(1)
    view = seen(lease, connected=False, stage="pulling", devices=("GPU-0",))
    (moved,) = planned(lease, observed=[view])
    assert isinstance(moved, Progress | Bind)
    assert moved.devices == ("GPU-0",)


def test_one_that_the_queue_takes_back_begins_anew_without_being_counted():
    lease = waiting(1, failures=2)
    (again,) = planned(lease, observed=[seen(lease, connected=False, failed="queue_preempted")])
    assert isinstance(again, Requeue)
    assert (again.reason, again.failure) == ("queue_preempted", False)


def test_a_lease_that_it_takes_back_ends_with_its_reason():
    lease = active(1, "GPU-0")
    view = seen(lease, connected=False, failed="queue_preempted", gone=True)
    (end,) = planned(lease, observed=[view])
    assert isinstance(end, End)
    assert (end.reason, end.end_reason) == ("queue_preempted", EndReason.FAILED)


def test_nobody_is_asked_to_leave_for_one_who_waits_there():
    lease = active(1, "GPU-0")
    assert planned(lease, waiting(2), request(3), devices=1) == planned(
        lease, waiting(2), request(3), devices=2
    )


def test_its_holder_reads_where_it_waits_and_why():
    said = explain(waiting(1), POLICY, said="cluster_quota")
    assert "waits in the cluster's queue" in said.sentence
    assert "share of the GPUs is in use" in said.sentence
    assert "no machine" not in said.sentence.lower()


def test_nothing_that_a_queue_admits_can_be_reserved():
    assert allowed_classes(POLICY, "course") == ("slice",)


TEXT = """
pools: {{cards: {{}}, slices: {{}}}}
classes:
  card: {{pool: cards, pod: {{kind: device_plugin, queue: {queue}}}{more}}}
  slice: {{pool: {pool}{other}}}
"""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "{kueue: a, kai: b}"}, "no engine, or two"),
        ({"queue": "{max_pending: 3}"}, "no engine, or two"),
        ({"queue": "{kueue: a, max_pending: 0}"}, "max_pending"),
        ({"queue": "{kueue: 'A b'}"}, "not of the right form"),
        ({"pool": "cards"}, "both gpulease and a cluster's queue"),
        ({"more": ", fallback: [slice]"}, "served by no other class"),
        ({"other": ", fallback: [card]"}, "cannot be a fallback"),
    ],
)
def test_what_cannot_go_together_is_said(changes, words):
    given = {"queue": "{kueue: students}", "pool": "slices", "more": "", "other": ""} | changes
    findings = document.check(TEXT.format(**given))
    assert any(words in each.message for each in findings), findings


def test_a_queue_is_read_as_it_is_written():
    text = TEXT.format(queue="{kueue: students, max_pending: 7}", pool="slices", more="", other="")
    read = document.parse(text, 1)
    assert read.classes[0].queue == ClusterQueue(QueueEngine.KUEUE, "students", 7)
    assert document.parse(document.dump(read), 1).classes == read.classes
