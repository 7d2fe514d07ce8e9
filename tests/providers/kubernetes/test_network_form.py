"""What NetworkPolicies let through by their form, and what the doctor makes of them."""

import copy
from dataclasses import replace

import pytest

from gpulease.providers.kubernetes.checkup.checkup import Fault, faults, server_path, service_end
from gpulease.providers.kubernetes.manifests.pod_network import End, lets, matches
from tests.helm_values import shipped
from tests.providers.kubernetes.server_pods import SETTINGS

SITE = replace(
    SETTINGS, service_url="http://gpulease.gpulease-system:9980/services/gpulease/", instance="x"
)
A, B = End("here", {"app": "a"}), End("there", {"app": "b"})


def policy(name="p", **spec):
    return {"metadata": {"name": name}, "spec": {"podSelector": {}, **spec}}


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_selectors(selector, taken):
    assert matches(selector, {"app": "a"}) is taken


def out(*rules, **more):
    return [policy(egress=list(rules), policyTypes=["Egress"], **more)]


@pytest.mark.parametrize(
    ("policies", "passes"),
    [
        ([], True),  # who is not selected is not bounded
        (out(podSelector={"matchLabels": {"app": "c"}}), True),
        ([policy(ingress=[])], True),  # of the other direction
        (out(), False),
        (out({}), True),
        (out({"ports": [{"port": 80}]}), True),
        (out({"ports": [{"port": 70, "endPort": 80}]}), True),
        (out({"ports": [{"port": 70, "endPort": 79}]}), False),
        (out({"ports": [{"port": 80, "protocol": "UDP"}]}), False),
        (out({"ports": [{"port": "http"}]}), True),
        (out({"to": [{"podSelector": {}}]}), False),  # of the same namespace only
        (out({"to": [{"namespaceSelector": {}}]}), True),
        (out({"to": [{"namespaceSelector": {"matchLabels": {"x": "y"}}}]}), False),
        (
            out(
                {
                    "to": [
                        {
                            "namespaceSelector": {
                                "matchLabels": {"kubernetes.io/metadata.name": "there"}
                            },
                            "podSelector": {"matchLabels": {"app": "b"}},
                        }
                    ]
                }
            ),
            True,
        ),
        (out({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}), False),  # a pod is no address
        ([*out(), *out({"ports": [{"port": 80}]})], True),  # they add up
        ([policy(egress=[{}])], True),  # bounded in both directions without policyTypes
    ],
)
def test_who_reaches_whom(policies, passes):
    assert lets(policies, A, "Egress", B, (80, "TCP")) is passes


def test_addresses():
    block = {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}
    rules = out({"to": [{"ipBlock": block}]})
    for address, passes in (("10.2.0.1", True), ("10.1.2.3", False), ("fd00::1", False)):
        assert lets(rules, A, "Egress", End(address=address), (80, "TCP")) is passes


def test_how_the_service_is_reached():
    marks = {"app.kubernetes.io/name": "gpulease", "app.kubernetes.io/component": "service"}
    assert service_end("http://gpulease.own:9980/x/") == (End("own", marks), 9980)
    assert service_end("https://gpulease.own.svc.cluster.local/") == (End("own", marks), 443)
    assert service_end("http://10.0.0.1/") == (End(address="10.0.0.1"), 80)
    assert service_end("https://hub.example.org/services/gpulease/") == (None, 443)


def shipped_policies():
    return shipped.load("leases/network.yaml")


def test_the_shipped_policies_are_right():
    assert faults(shipped_policies(), SITE, shipped.SERVERS) == []


def changed(change):
    policies = copy.deepcopy(shipped_policies())
    change(policies)
    return policies


def remove_all(policies):
    policies.clear()


def other_port(policies):
    policies[0]["spec"]["egress"][1]["ports"][0]["port"] = 9981


def no_dns(policies):
    del policies[0]["spec"]["egress"][0]


def narrow(policies):
    policies[0]["spec"]["ingress"][0]["ports"][0]["endPort"] = 8900


def no_ingress(policies):
    policies[0]["spec"]["policyTypes"] = ["Egress"]


def metadata_too(policies):
    policies[1]["spec"]["egress"][0]["to"][0]["ipBlock"]["except"].remove("169.254.0.0/16")


def servers_stay_in(policies):
    selector = {"matchLabels": {"component": "singleuser-server"}}
    policies.append(policy("singleuser", podSelector=selector, policyTypes=["Egress"], egress=[]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (remove_all, "No network policy of jupyterhub bounds what lease pods may reach"),
        (other_port, "may not reach the service at http://gpulease.gpulease-system:9980"),
        (no_dns, "may not reach DNS"),
        (narrow, "take nothing from servers on ports 8890-8990"),
        (no_ingress, "bounds what lease pods may be reached by"),
        (metadata_too, "may reach the metadata service"),
        (servers_stay_in, "may not reach lease pods on ports 8890-8990: singleuser."),
    ],
)
def test_each_fault_is_named_and_says_what_mends_it(change, words):
    found = faults(changed(change), SITE, shipped.SERVERS)
    assert [each for each in found if words in each.sentence]
    assert all(each.next_step for each in found)


def test_an_address_needs_no_dns():
    site = replace(SITE, service_url="http://10.0.0.1:9980/")
    found = faults(changed(no_dns), site, shipped.SERVERS)
    assert [each.sentence for each in found] == [
        "Lease pods of jupyterhub may not reach the service at http://10.0.0.1:9980/."
    ]


# How servers reach the service.

DIRECT = "http://gpulease.gpulease-system:9980/services/gpulease/"
SERVERS = {"component": "singleuser-server"}


def test_a_named_port_is_the_one_that_the_pod_gives_that_name():
    named = out({"ports": [{"port": "http"}]})
    known = replace(B, ports={"http": 8000})
    assert lets(named, A, "Egress", known, (8000, "TCP"))
    assert not lets(named, A, "Egress", known, (8443, "TCP"))


@pytest.mark.parametrize(
    ("url", "policies", "said"),
    [
        (DIRECT, [], "reach the service directly"),
        ("https://hub.example.org/services/gpulease/", [], "by a name outside the cluster"),
    ],
)
def test_it_is_said_how_servers_reach_the_service(url, policies, said):
    found = server_path(policies, url, SERVERS, "jupyterhub")
    assert isinstance(found, str)
    assert said in found
    assert url in found


def test_servers_that_cannot_reach_the_service_are_a_fault():
    closed = out({"ports": [{"port": 8081}]}, podSelector={"matchLabels": SERVERS})
    found = server_path(closed, DIRECT, SERVERS, "jupyterhub")
    assert isinstance(found, Fault)
    assert "let no server reach" in found.sentence
    # The proxy answers 301 where the chart has https, at which clients stop.
    found = server_path([], "http://proxy-public/services/gpulease/", SERVERS, "jupyterhub")
    assert isinstance(found, Fault)
    assert "sends http to https" in found.sentence
