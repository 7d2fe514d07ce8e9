"""What a pod that stands ready says of itself, and what makes it somebody's."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpulease.policy.catalog import Warm
from gpulease.policy.model import GPUClass
from gpulease.policy.pods import PodAsk, Toleration
from gpulease.protocol import names as protocol
from gpulease.providers.kubernetes.manifests.manifest import lease_pod, notebook_container
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.warm.manifest import (
    FILES,
    claim,
    has_other_data,
    shape,
    warm_pod,
)
from tests.providers.kubernetes.server_pods import SETTINGS, lease, server

CLASS = GPUClass("card", "cards", pod=PodAsk(image="example.org/gpu:1"), warm=Warm(1))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def made(gpu_class=CLASS, of=None):
    body = warm_pod("gpulease-warm-1", gpu_class, of or server(), SETTINGS)
    began = (NOW - timedelta(seconds=90)).isoformat()
    return body | {
        "metadata": body["metadata"] | {"uid": "uid-1"},
        "status": {"startTime": began},
    }


def variables(pod):
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}


def test_it_is_ours_and_nobodys():
    pod = made()
    assert pods.warm_class(pod, SETTINGS.instance) == "card"
    assert not pods.is_lease(pod, SETTINGS.instance)
    assert pods.is_ours(pod, SETTINGS.instance)
    assert "ownerReferences" not in pod["metadata"]
    assert "activeDeadlineSeconds" not in pod["spec"]
    assert not [each for each in ("jane", server()["metadata"]["uid"]) if each in str(pod)]


def test_no_variable_of_any_server_is_in_it():
    own = {each["name"] for each in notebook_container(server())["env"]}
    assert own & variables(made()).keys() == set()


def test_whatever_may_disturb_a_node_may_take_it_away():
    assert not {name for name in made()["metadata"]["annotations"] if "evict" in name}


def test_claimed_it_is_what_the_leases_own_pod_would_have_been():
    pod, held = made(), lease(gpu_class="card", count=1)
    patch, environment = claim(pod, held, CLASS, server(), SETTINGS, now=NOW)
    own = lease_pod(held, CLASS, server(), FILES, SETTINGS, now=NOW)
    merged = dict(pod["metadata"]["labels"]) | patch["metadata"]["labels"]
    assert {k: v for k, v in merged.items() if v is not None} == own["metadata"]["labels"]
    assert patch["metadata"]["annotations"] == own["metadata"]["annotations"]
    assert patch["metadata"]["ownerReferences"] == own["metadata"]["ownerReferences"]
    assert patch["metadata"]["uid"] == "uid-1"
    # Its deadline counts from its start, which was 90 s before.
    assert patch["spec"] == {"activeDeadlineSeconds": own["spec"]["activeDeadlineSeconds"] + 90}
    after = variables(pod) | dict(environment)
    del after[protocol.ENV_WARM]
    assert after == variables(own)


def test_what_is_told_is_no_more_than_what_differs():
    mine = lease(gpu_class="card", count=1)
    _patch, environment = claim(made(), mine, CLASS, server(), SETTINGS, now=NOW)
    assert "HOME" not in environment
    assert protocol.ENV_SERVICE_URL not in environment
    assert protocol.ENV_HARD_END in environment


@pytest.mark.parametrize(
    "changed",
    [
        {"image": "example.org/gpu:2"},
        {"tolerations": (Toleration("x"),)},
        {"node_selector": (("zone", "a"),)},
        {"limits": (("cpu", "2"),)},
    ],
)
def test_another_image_or_another_ask_is_another_shape(changed):
    other = replace(CLASS, pod=replace(CLASS.pod, **changed))
    assert shape(other, server(), SETTINGS) != shape(CLASS, server(), SETTINGS)


def test_servers_of_one_kind_have_one_shape_and_another_account_another():
    first, second = server(), server()
    second["metadata"] = second["metadata"] | {"uid": "other", "name": "jupyter-bob"}
    second["spec"]["nodeName"] = "elsewhere"
    second["spec"]["containers"][1]["env"] = [{"name": "COURSE", "value": "x"}]
    assert shape(CLASS, first, SETTINGS) == shape(CLASS, second, SETTINGS)
    second["spec"]["securityContext"] = {"runAsUser": 4711}
    second["spec"]["containers"][1]["securityContext"] = {"runAsUser": 4711}
    assert shape(CLASS, first, SETTINGS) != shape(CLASS, second, SETTINGS)


def test_a_server_with_course_data_is_not_served_by_a_pod_that_has_none():
    plain = server(volumes=[])
    notebook = plain["spec"]["containers"][1]
    notebook["volumeMounts"] = []
    assert not has_other_data(plain, SETTINGS.home)
    plain["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    notebook["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    assert has_other_data(plain, SETTINGS.home)
    notebook["volumeMounts"][0]["mountPath"] = f"{SETTINGS.home}/"
    assert not has_other_data(plain, SETTINGS.home)
