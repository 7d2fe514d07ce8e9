from datetime import UTC, datetime

import pytest

from gpulease.policy.model import LeaseState
from gpulease.protocol import labels
from gpulease.providers.kubernetes.observed import pods
from tests.providers.kubernetes.objects import INSTANCE, lease_pod, pod


def container(gpus=0, restart=None, **more):
    found = {"name": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus), **more}}}
    return found | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("own", "init", "charged"),
    [
        (1, [], 1),
        (1, [container(3)], 3),
        (2, [container(1), container(1)], 2),
        (1, [container(1, "Always")], 2),
        (1, [container(1, "Always"), container(3)], 4),
        (1, [container(3), container(1, "Always")], 3),
    ],
)  # fmt: skip
def test_a_pod_is_charged_as_the_scheduler_does(own, init, charged):
    assert pods.asks_of(pod("p", gpus=own, init=init)) == {"nvidia.com/gpu": charged}


def test_ordinary_resources_are_none_of_ours():
    plain = pod("p", gpus=0)
    plain["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert pods.asks_of(plain) == {}
    assert pods.outline(plain) is None


def test_a_pod_that_only_takes_devices_is_kept_small():
    kept = pods.outline(pod("p", node="n1", gpus=2, notes={"much": "x" * 1000}))
    assert kept is not None
    assert pods.use_of(kept, INSTANCE).asks == {"nvidia.com/gpu": 2}
    assert "annotations" not in kept["metadata"]
    assert "managedFields" not in pods.lean(pod("p"))["metadata"]


@pytest.mark.parametrize(
    ("text", "amount"),
    [("8", 8), (8, 8), ("1k", 1000), ("2Ki", 2048), ("1500m", 2), ("", 0), ("many", 0), (None, 0)],
)
def test_quantities(text, amount):
    assert pods.amount_of(text) == amount


def test_only_pods_of_our_own_installation_are_our_leases():
    assert pods.use_of(lease_pod("l1", attempt=2, node="n1"), INSTANCE).lease == "l1"
    assert pods.use_of(lease_pod("l1", attempt=2), INSTANCE).attempt == 2
    other = pods.use_of(lease_pod("l1", instance="hub-b", node="n1"), INSTANCE)
    assert (other.lease, other.asks) == ("", {"nvidia.com/gpu": 1})


def test_a_server_is_known_by_the_spawners_notes():
    ours = {labels.USER: "jane@x.org", labels.SERVER: "lab"}
    assert pods.server_of(pod("s", notes=ours), INSTANCE) == ("jane@x.org", "lab")
    hubs = {"hub.jupyter.org/username": "jane", "hub.jupyter.org/servername": ""}
    assert pods.server_of(pod("s", notes=hubs), INSTANCE) == ("jane", "")
    assert pods.server_of(pod("s"), INSTANCE) is None
    assert pods.server_of(lease_pod("l1"), INSTANCE) is None


def test_a_server_of_another_installation_is_none_of_ours():
    marks = {labels.INSTANCE: "hub-b"}
    assert pods.server_of(pod("s", notes={labels.USER: "jane"}, marks=marks), INSTANCE) is None


def test_a_lease_pod_tells_its_lease():
    notes = {
        labels.USER: "jane@x.org", labels.SERVER: "lab", labels.GPU_CLASS: "a100",
        labels.PROJECT: "cs101", labels.CREATED: "2026-01-01T09:00:00+00:00",
        labels.GRANTED: "2026-01-01T09:05:00+00:00", labels.ENDS: "2026-01-01T17:05:00+00:00",
        labels.SLOTS: "n1/nvidia.com/gpu/0,n1/nvidia.com/gpu/1", labels.KERNEL: "k-1",
    }  # fmt: skip
    found = pods.record_of(lease_pod("l1", attempt=3, count=2, notes=notes))
    assert found is not None
    assert (found.id, found.user, found.server, found.gpu_class) == (
        "l1",
        "jane@x.org",
        "lab",
        "a100",
    )
    assert (found.attempt, found.count, found.state) == (3, 2, LeaseState.ACTIVE)
    assert found.devices == ("n1/nvidia.com/gpu/0", "n1/nvidia.com/gpu/1")
    assert found.active_since == datetime(2026, 1, 1, 9, 5, tzinfo=UTC)
    assert found.hard_end == datetime(2026, 1, 1, 17, 5, tzinfo=UTC)
    assert found.kernel_id == "k-1"


@pytest.mark.parametrize(
    ("ends", "deadline", "until"),
    [
        ("2026-01-01T17:05:00+00:00", None, datetime(2026, 1, 1, 17, 5, tzinfo=UTC)),
        ("2026-01-01T17:05:00+00:00", 36000, datetime(2026, 1, 1, 17, 5, tzinfo=UTC)),
        ("2026-01-01T17:05:00+00:00", 3700, datetime(2026, 1, 1, 10, 0, tzinfo=UTC)),
        (None, 3700, datetime(2026, 1, 1, 10, 0, tzinfo=UTC)),
        (None, None, None),
    ],
)  # fmt: skip
def test_a_pod_may_be_used_until_all_can_still_go_home(ends, deadline, until):
    """What it was made for, or less where somebody lowered its deadline."""
    found = lease_pod("l1", notes={labels.ENDS: ends} if ends else None)
    found["spec"]["terminationGracePeriodSeconds"] = 100
    found["status"]["startTime"] = "2026-01-01T09:00:00Z"
    if deadline is not None:
        found["spec"]["activeDeadlineSeconds"] = deadline
    assert pods.ends_of(found) == until


def test_a_pod_that_says_too_little_tells_no_lease():
    assert pods.record_of(lease_pod("l1")) is None


def test_a_lease_pod_tells_how_the_files_reach_it():
    notes = {labels.FILES: "mirror", labels.FILES_WHY: "Claim claim-jane is for one node."}
    assert pods.files_of(lease_pod("l1", notes=notes)) == (
        "Files: mirror. Claim claim-jane is for one node."
    )
    assert pods.files_of(lease_pod("l1")) == pods.files_of(None) == ""


def test_a_pod_that_only_takes_devices_is_nobodys_whatever_its_labels_say():
    marks = {
        labels.LEASE: "l1", labels.ATTEMPT: "1", labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: labels.label_value(INSTANCE),
    }  # fmt: skip
    forged = pod("p", node="n1", gpus=2, marks=marks, notes={labels.USER: "jane"})
    assert pods.is_lease(forged, INSTANCE)
    kept = pods.outline(forged)
    assert not pods.is_lease(kept, INSTANCE)
    assert pods.server_of(kept, INSTANCE) is None
    assert pods.use_of(kept, INSTANCE).asks == {"nvidia.com/gpu": 2}


def test_a_nonsense_number_of_devices_is_bounded():
    marks = {
        labels.LEASE: "l1", labels.ATTEMPT: "1", labels.COMPONENT: labels.LEASE_COMPONENT,
        labels.INSTANCE: labels.label_value(INSTANCE),
    }  # fmt: skip
    for said, count in (("999999999999", pods.MOST_DEVICES), ("-3", 1), ("two", 1), ("8", 8)):
        told = pod("p", node="n1", gpus=1, marks=marks, notes={labels.COUNT: said})
        assert pods.use_of(told, INSTANCE).count == count


@pytest.mark.parametrize(
    ("said", "amount"), [("1e999", 0), ("inf", 0), ("nan", 0), ("", 0), ("1k", 1000), ("1500m", 2)]
)
def test_a_label_or_quantity_that_is_nonsense_is_nothing(said, amount):
    assert pods.amount_of(said) == amount
