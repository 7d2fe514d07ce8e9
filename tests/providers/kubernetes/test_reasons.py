import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.policy import reasons
from gpulease.policy.lifecycle import OTHERS_FAILURES, OWN_FAILURES, STAGES, START_FAILURES
from gpulease.protocol import labels
from gpulease.providers.kubernetes.observed.reasons import StartTimeouts, read_pod, read_refusal
from tests.providers.kubernetes.failing_pods import CASES

RECORDED = json.loads(Path(__file__).with_name("statuses.json").read_text(encoding="utf-8"))
SHOTS = [(name, shot) for name, shots in RECORDED["pods"].items() for shot in shots]
BY_NAME = {case.name: case for case in CASES}
NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)


def ago(seconds):
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("name", "shot"), SHOTS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SHOTS)]
)
def test_what_a_real_cluster_said_is_read_as_it_was(name, shot):
    reading = read_pod(shot["pod"], shot["events"], now=datetime.fromisoformat(shot["at"]))
    assert (reading.stage, reading.failed) == (shot["stage"], shot["failed"])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_pod_that_cannot_start_was_recorded_with_its_code(case):
    shots = RECORDED["pods"][case.name]
    last = read_pod(
        shots[-1]["pod"], shots[-1]["events"], now=datetime.fromisoformat(shots[-1]["at"])
    )
    assert last.failed == case.failed
    assert case.words in last.detail
    if case.stage:
        assert case.stage in {shot["stage"] for shot in shots}


def test_a_pod_on_a_node_that_went_away_is_read_as_lost():
    shots = RECORDED["pods"]["node-lost"]
    assert [shot["stage"] or shot["failed"] for shot in shots] == ["connecting", "node_lost"]
    lost = json.loads(json.dumps(shots[-1]["pod"]))
    now = datetime.fromisoformat(shots[-1]["at"])
    conditions = lost["status"]["conditions"]
    # Before it takes the pod away, the cluster only takes its readiness back, without a reason.
    lost["status"]["conditions"] = [c for c in conditions if c["type"] != "DisruptionTarget"]
    assert read_pod(lost, now=now).failed == "node_lost"
    (ready,) = [c for c in lost["status"]["conditions"] if c["type"] == "Ready"]
    ready["reason"] = "ContainersNotReady"
    assert read_pod(lost, now=now).failed != "node_lost"


@pytest.mark.parametrize("refusal", RECORDED["refusals"], ids=lambda r: r["name"])
def test_what_a_real_api_server_refused_is_read(refusal):
    reading = read_refusal(refusal["status"], refusal["reason"], refusal["message"])
    assert reading.failed == (
        "quota_exceeded" if refusal["name"] == "quota" else "admission_refused"
    )
    assert reading.detail == refusal["message"]


def test_a_quota_tells_its_numbers():
    (quota,) = [each for each in RECORDED["refusals"] if each["name"] == "quota"]
    assert read_refusal(403, "Forbidden", quota["message"]).numbers == {
        "quota": "gpus",
        "requested": "requests.nvidia.com/gpu=2",
        "used": "requests.nvidia.com/gpu=0",
        "limited": "requests.nvidia.com/gpu=1",
    }


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (0, "", "cluster_unreachable"),
        (429, "too many requests", "cluster_unreachable"),
        (503, "apiserver is shutting down", "cluster_unreachable"),
        (500, 'failed calling webhook "x": timeout', "admission_refused"),
        (500, "etcd leader changed", "cluster_unreachable"),
        (403, "exceeded quota", "quota_exceeded"),
        (404, 'namespaces "jane" not found', "admission_refused"),
    ],
)
def test_other_refusals(status, message, code):
    assert read_refusal(status, "", message).failed == code


def bound(seconds, **status):
    """A pod that was bound some seconds ago."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(seconds)}
    return {
        "metadata": {"name": "a", "creationTimestamp": ago(seconds)},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Pending", "conditions": [scheduled]} | status,
    }


def event(reason, seconds, message="said"):
    return {"reason": reason, "message": message, "lastTimestamp": ago(seconds)}


def read(pod, *events, **bounds):
    return read_pod(pod, events, now=NOW, bounds=StartTimeouts(**bounds))


def test_a_pull_is_its_own_stage_however_long_and_the_start_counts_from_its_end():
    pulling = [event("Scheduled", 900), event("Pulling", 890)]
    reading = read(bound(900), *pulling)
    assert (reading.stage, reading.failed, reading.numbers) == ("pulling", "", {"seconds": 890})
    assert read(bound(900), *pulling, event("Pulled", 50)).stage == "starting_container"
    assert read(bound(900), *pulling, event("Pulled", 61)).failed == "start_timeout"


def test_a_node_that_does_not_start_the_pod_is_given_up():
    assert read(bound(59)).stage == "starting_container"
    assert read(bound(60)).failed == "start_timeout"


@pytest.mark.parametrize("reason", ["FailedAttachVolume", "FailedMount"])
def test_a_volume_has_its_time_to_attach(reason):
    first = event(reason, 0, "Multi-Attach error") | {"firstTimestamp": ago(19)}
    reading = read(bound(30), first)
    assert (reading.stage, reading.numbers) == ("starting_container", {"seconds": 19})
    assert "Multi-Attach" in reading.detail
    first["firstTimestamp"] = ago(20)
    assert read(bound(30), first).failed == "volume_failed"
    assert read(bound(30), first, attach=60).stage == "starting_container"


def test_a_volume_that_did_mount_in_the_end_is_no_failure():
    running = {"name": "companion", "state": {"running": {"startedAt": ago(3)}}}
    assert read(bound(40, containerStatuses=[running]), event("FailedMount", 30)).stage == (
        "connecting"
    )


def test_a_companion_that_does_not_come_through_is_given_up():
    running = {"name": "companion", "state": {"running": {"startedAt": ago(60)}}}
    assert read(bound(90, containerStatuses=[running])).failed == "start_timeout"


def test_a_pod_that_stood_ready_for_an_hour_has_the_same_time_once_it_is_a_leases():
    running = {"name": "companion", "state": {"running": {"startedAt": ago(3600)}}}
    pod = bound(3601, containerStatuses=[running])
    pod["metadata"]["annotations"] = {labels.GRANTED: ago(59)}
    assert read(pod).stage == "connecting"
    pod["metadata"]["annotations"] = {labels.GRANTED: ago(60)}
    assert read(pod).failed == "start_timeout"


def test_a_claim_that_cannot_be_prepared_is_tried_for_a_while():
    tried = event("FailedPrepareDynamicResources", 5, "no driver")
    assert read(bound(30), tried).detail == "FailedPrepareDynamicResources: no driver"
    assert read(bound(61), tried).failed == "claim_failed"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "evicted"),
        ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}, "capacity_taken"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "capacity_taken"),
        ({"phase": "Failed", "reason": "NodeLost"}, "node_lost"),
        ({"phase": "Failed", "reason": "Terminated", "message": "node shutdown"}, "evicted"),
        ({"phase": "Failed", "reason": "NodeAffinity"}, "unschedulable"),
        ({"phase": "Unknown"}, "node_lost"),
        ({"phase": "Failed"}, "supervisor_failed"),
    ],
)
def test_a_pod_that_is_over_says_why(status, code):
    reading = read(bound(5, **status))
    assert (reading.stage, reading.failed) == ("", code)
    assert reading.detail


@pytest.mark.parametrize("reason", ["NodeLost", "NodeNotReady"])
def test_a_pod_whose_node_does_not_answer_is_not_called_over_by_its_old_status(reason):
    status = bound(5)["status"]
    status["conditions"].append({"type": "Ready", "status": "False", "reason": reason})
    status["containerStatuses"] = [{"name": "companion", "state": {"running": {}}}]
    assert read(bound(5, **status)).failed == "node_lost"


def test_the_preemption_of_a_pod_is_an_eviction():
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    assert read(bound(5, conditions=[gone])).failed == "evicted"
    assert read(bound(5, conditions=[gone | {"status": "False"}])).stage == "starting_container"


def test_a_long_message_is_cut():
    status = {"phase": "Failed", "reason": "Evicted", "message": "x " * 5000}
    assert len(read(bound(5, **status)).detail) == 500


def test_every_code_has_its_words_and_is_either_our_fault_or_others():
    assert set(reasons.STARTING) >= set(STAGES)
    assert set(reasons.WAITING) >= START_FAILURES
    assert not OWN_FAILURES & OTHERS_FAILURES


states = st.fixed_dictionaries(
    {},
    optional={
        "waiting": st.fixed_dictionaries({}, optional={"reason": st.text(max_size=9)}),
        "terminated": st.fixed_dictionaries({"exitCode": st.integers(0, 255)}),
        "running": st.fixed_dictionaries({}, optional={"startedAt": st.just(ago(1))}),
    },
)


@given(
    st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Unknown", ""]),
    st.lists(states, max_size=2),
    st.lists(st.builds(event, st.sampled_from(["Pulling", "FailedMount", ""]), st.integers(0, 99))),
    st.booleans(),
)
def test_any_status_gives_one_stage_or_one_failure(phase, found, events, placed):
    pod = bound(
        5, phase=phase, containerStatuses=[{"name": "companion", "state": s} for s in found]
    )
    if not placed:
        pod["spec"] = {}
    reading = read(pod, *events)
    assert bool(reading.stage) != bool(reading.failed)
    assert reading.stage in {"", *STAGES}
    assert reading.failed in {"", *START_FAILURES}


#: What a start meets while it stays in one stage: code of ``PROGRESS``, pod, events.
MET = {
    "no_room_yet": (
        {
            "metadata": {"name": "a", "creationTimestamp": ago(9)},
            "spec": {},
            "status": {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                    }
                ],
            },
        },
        [],
    ),
    "pulled_again": (
        bound(
            5,
            containerStatuses=[
                {
                    "name": "companion",
                    "image": "x:1",
                    "state": {"waiting": {"reason": "ErrImagePull", "message": "EOF"}},
                }
            ],
        ),
        [],
    ),
    "files_not_there": (bound(5), [event("FailedMount", 3)]),
    "claim_not_ready": (bound(5), [event("FailedPrepareDynamicResources", 3, "driver away")]),
}


@pytest.mark.parametrize("code", MET)
def test_what_a_start_meets_is_said_to_its_holder(code):
    pod, events = MET[code]
    reading = read(pod, *events)
    assert (reading.failed, reading.said) == ("", code)
    assert reasons.PROGRESS[code]
    assert reading.detail, "the cluster's own words, for admins"


def test_every_word_of_progress_is_met_somewhere():
    """``asked_again`` is the provider's, while no server takes the pod; test_queues has its own."""
    queues = {"in_cluster_queue", "cluster_quota", "cluster_queue_again", "cluster_queue_stopped"}
    assert set(MET) | {"", "asked_again"} | queues == set(reasons.PROGRESS)


def test_a_claim_that_is_never_prepared_is_given_up():
    prepared = event("FailedPrepareDynamicResources", 3, "driver away")
    assert read(bound(59), prepared).said == "claim_not_ready"
    late = read(bound(60), prepared)
    assert (late.failed, late.said) == ("claim_failed", "")
    assert "driver away" in late.detail


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("Evicted", "evicted"),
        ("Preempting", "evicted"),
        ("NodeShutdown", "evicted"),
        ("Terminated", "evicted"),
        ("NodeLost", "node_lost"),
        ("DeadlineExceeded", "start_timeout"),
        ("UnexpectedAdmissionError", "capacity_taken"),
        ("OutOfnvidia.com/gpu", "capacity_taken"),
        ("NodeAffinity", "unschedulable"),
    ],
)
def test_a_pod_that_failed_as_a_whole_tells_why(reason, code):
    reading = read(bound(5, phase="Failed", reason=reason, message="so it is"))
    assert reading.failed == code
    assert reading.detail == f"{reason}: so it is"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("DeletionByTaintManager", "node_lost"),
        ("DeletionByPodGC", "node_lost"),
        ("PreemptionByScheduler", "evicted"),
        ("EvictionByEvictionAPI", "evicted"),
        ("TerminationByKubelet", "evicted"),
        ("SomethingNew", "evicted"),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_pod_that_the_cluster_takes_away_tells_why(reason, code, phase):
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}
    assert read(bound(5, phase=phase, conditions=[target])).failed == code
    target["status"] = "False"
    assert read(bound(5, conditions=[target])).failed == ""


def test_a_share_for_which_hami_has_no_room_was_taken_by_others_and_did_not_fail():
    """Its person waits on, with HAMi's words for admins, and no attempt is counted."""
    message = "0/2 nodes are available: 1 NodeUnfitPod, 1 node unregistered."
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    pod = {
        "metadata": {"name": "a", "creationTimestamp": ago(11)},
        "spec": {},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    reading = read(pod, event("FilteringFailed", 3, "1 nodes CardInsufficientMemory(n1)"))
    assert (reading.failed, reading.detail) == ("capacity_taken", message)
    never = read(pod, event("FilteringFailed", 3, "1 nodes CardTypeMismatch(n1)"))
    assert never.failed == "unschedulable"
