"""What a lease pod counts for under quotas, and what they leave."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpulease.providers.kubernetes.manifests.server_limits import (
    Ahead,
    Wish,
    bounds,
    counted,
    counts_for,
)
from tests.policy.build import request
from tests.providers.kubernetes.expected import class_of
from tests.providers.kubernetes.server_pods import SETTINGS, server

CARD = class_of({"kind": "device_plugin"}, 4)
GPU = "requests.nvidia.com/gpu"


def wish(number=1, count=1, gpu_class=CARD):
    return Wish(request(number, count=count), gpu_class, server())


def left(quotas, waiting, coming=(), classes=(CARD,), pod=lambda *_: server()):
    """What the quotas leave; who waits and comes asks for class `gpu` unless it says other."""

    def asked(numbers):
        return [request(n, count=c, gpu_class=name) for n, c, name in numbers]

    return bounds(quotas, Ahead(asked(waiting), asked(coming), classes, pod), SETTINGS)


def quota(hard, used=None, namespace="hub", **spec):
    metadata = {"name": "gpus", "namespace": namespace}
    return {
        "metadata": metadata,
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def test_a_whole_card_counts_with_its_pod_and_what_follows_the_server():
    found = counted(wish(count=2))
    assert found[GPU] == 2
    assert found["pods"] == found["count/pods"] == 1
    assert found["requests.cpu"] == found["cpu"] == Decimal("0.5")
    assert found["limits.cpu"] == 2
    assert found["requests.memory"] == 2**30
    assert found["limits.memory"] == 4 * 2**30


def test_a_lease_on_several_nodes_counts_with_all_its_pods():
    one, lease = counted(wish(count=2)), replace(request(1, count=4), nodes=2)
    found = counted(Wish(lease, CARD, server()))
    assert found == {name: 2 * each for name, each in one.items()}
    claims = counted(Wish(lease, class_of({"kind": "dra"}, 4), server()))
    assert claims["count/resourceclaims.resource.k8s.io"] == 2
    assert claims["gpu.nvidia.com.deviceclass.resource.k8s.io/devices"] == 4


def test_what_is_limited_alone_is_requested_as_much():
    ask = {"kind": "device_plugin", "requests": {"cpu": "1"}, "limits": {"memory": "8Gi"}}
    found = counted(wish(gpu_class=class_of(ask)))
    assert found["requests.memory"] == 8 * 2**30
    assert found["requests.cpu"] == 1


def test_fractions_count_by_their_own_resources():
    ask = {
        "kind": "extra",
        "resource": "aliyun.com/gpu-mem",
        "amount": 8,
        "extra_resources": {"example.org/cores": "30"},
    }
    found = counted(wish(gpu_class=class_of(ask)))
    assert found["requests.aliyun.com/gpu-mem"] == 8
    assert found["requests.example.org/cores"] == 30
    assert GPU not in found


def test_a_claim_counts_by_its_device_class():
    found = counted(wish(count=2, gpu_class=class_of({"kind": "dra"}, 2)))
    assert found["count/resourceclaims.resource.k8s.io"] == 1
    assert found["gpu.nvidia.com.deviceclass.resource.k8s.io/devices"] == 2
    assert GPU not in found


def test_what_is_left_is_without_what_is_used_and_what_is_on_its_way():
    (found,) = left([quota({GPU: "8"}, {GPU: "3"})], [(1, 2, "gpu")], [(2, 4, "gpu")])
    assert found.left == 1
    assert found.takes == {("r1", "gpu"): {2: 2}}
    assert found.detail == f"Quota gpus of namespace hub: 3 of 8 {GPU} used."


def test_each_number_of_gpus_that_a_request_can_live_with_is_counted():
    fewer = replace(request(1, count=3, gpu_class="gpu"), min_count=2)
    ahead = Ahead([fewer], [], [CARD], lambda *_: server())
    (found,) = bounds([quota({GPU: "8"}, {GPU: "3"})], ahead, SETTINGS)
    assert list(found.takes.values()) == [{2: 2, 3: 3}]


def test_only_quotas_of_the_servers_namespace_and_of_what_a_pod_takes_count():
    other = [quota({GPU: "0"}, namespace="elsewhere"), quota({"count/secrets": "0"})]
    assert left(other, [(1, 1, "gpu")]) == []
    both = left([quota({GPU: "1", "pods": "10"}, {"pods": "10"})], [(1, 1, "gpu")])
    assert {each.left for each in both} == {0, 1}


def test_a_quota_that_is_not_counted_yet_bounds_nothing():
    new = {**quota({GPU: "0"}), "status": {}}
    assert left([new], [(1, 1, "gpu")]) == []


@pytest.mark.parametrize(
    ("scopes", "counts"),
    [
        ({}, True),
        ({"scopes": ["Terminating"]}, True),
        ({"scopes": ["NotTerminating"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["Terminating", "BestEffort"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        *(
            ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", **each}]}}, is_)
            for each, is_ in (
                ({"operator": "In", "values": ["leases"]}, True),
                ({"operator": "In", "values": ["other"]}, False),
                ({"operator": "NotIn", "values": ["other"]}, True),
                ({"operator": "Exists"}, True),
                ({"operator": "DoesNotExist"}, False),
            )
        ),
    ],
)
def test_scopes(scopes, counts):
    settings = replace(SETTINGS, priority_class="leases")
    assert counts_for(quota({GPU: "1"}, **scopes), wish(), settings) is counts


def test_each_fall_back_takes_what_it_asks_for():
    slices = replace(class_of({"kind": "mig", "profile": "1g.5gb"}), name="slice")
    card = replace(CARD, fallback=("slice", "gone"))
    hard = {GPU: "1", "requests.nvidia.com/mig-1g.5gb": "3"}
    found = left([quota(hard)], [(1, 1, "gpu")], [(2, 1, "slice")], (card, slices))
    assert {tuple(each.takes): each.left for each in found} == {
        (("r1", "gpu"),): 1,
        (("r1", "slice"),): 2,
    }


def test_whose_server_or_class_is_not_there_takes_nothing():
    assert left([quota({GPU: "1"})], [(1, 1, "gpu")], pod=lambda *_: None) == []
    assert left([quota({GPU: "1"})], [(1, 1, "withdrawn")]) == []
