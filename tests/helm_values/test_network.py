"""What the shipped network policies let lease pods reach, and who reaches them."""

import argparse

import pytest

from gpulease.gpus.agent.arguments import add_arguments
from gpulease.gpus.agent.posting import Target, checked
from gpulease.protocol import labels
from gpulease.providers.kubernetes.manifests.pod_network import End, lets
from tests.helm_values import shipped

POLICIES = [each for each in shipped.load("leases/network.yaml") if each["kind"] == "NetworkPolicy"]
LEASE = End(shipped.SERVERS, {labels.NAME: labels.APP, labels.COMPONENT: labels.LEASE_COMPONENT})
SERVICE = End(shipped.SYSTEM, {labels.NAME: labels.APP, labels.COMPONENT: labels.SERVICE_COMPONENT})
SERVER = End(shipped.SERVERS, {"component": "singleuser-server"})


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",  # metadata
        "fd00:ec2::254",
        "64:ff9b::a9fe:a9fe",  # the same by NAT64
        "100.100.100.200",
        "10.96.0.1",  # the API server, as a rule
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "fe80::1",
    ],
)
def test_nothing_private_is_reached(address):
    for port in (80, 443, 6443, 9980):
        assert not lets(POLICIES, LEASE, "Egress", End(address=address), (port, "TCP"))


@pytest.mark.parametrize("address", ["93.184.216.34", "172.15.255.255", "2606:2800::1"])
def test_the_internet_is_reached(address):
    assert lets(POLICIES, LEASE, "Egress", End(address=address), (443, "TCP"))


def test_names_and_the_service_are_reached_and_no_other_pod():
    dns = End("kube-system", {"k8s-app": "kube-dns"})
    assert lets(POLICIES, LEASE, "Egress", dns, (53, "UDP"))
    assert not lets(POLICIES, LEASE, "Egress", dns, (443, "TCP"))
    cache = End(address="169.254.20.10")  # NodeLocal DNSCache
    assert lets(POLICIES, LEASE, "Egress", cache, (53, "UDP"))
    assert not lets(POLICIES, LEASE, "Egress", cache, (80, "TCP"))
    cloud = End(address="169.254.169.254")  # GKE's, which is its metadata service, too
    assert lets(POLICIES, LEASE, "Egress", cloud, (53, "UDP"))
    assert not lets(POLICIES, LEASE, "Egress", cloud, (80, "TCP"))
    assert lets(POLICIES, LEASE, "Egress", SERVICE, (9980, "TCP"))
    assert not lets(POLICIES, LEASE, "Egress", SERVICE, (8892, "TCP"))
    for other in (SERVER, LEASE, End(shipped.SERVERS, {"component": "hub"})):
        assert not lets(POLICIES, LEASE, "Egress", other, (8081, "TCP"))


@pytest.mark.parametrize(
    ("to", "port", "open_"),
    [
        (End(shipped.SERVERS, {"component": "hub"}), 8081, True),
        (End("kube-system", {"k8s-app": "kube-dns"}), 53, True),
        (End(address="10.96.0.1"), 443, True),  # the API server
        (End(address="10.0.0.5"), 6443, True),
        (End("databases", {"app": "postgresql"}), 5432, True),
        (SERVER, 8888, False),
        (LEASE, 8890, False),
        (End(address="169.254.169.254"), 80, False),
        (End("other", {"component": "hub"}), 8081, False),
    ],
)
def test_the_service_reaches_what_it_needs_and_nobody_elses_pods(to, port, open_):
    own = shipped.load("service/network.yaml")
    assert lets(own, SERVICE, "Egress", to, (port, "TCP")) is open_


@pytest.mark.parametrize(
    ("port", "open_"), [(8889, False), (8890, True), (8990, True), (8991, False)]
)
def test_only_servers_reach_the_companions_ports(port, open_):
    assert lets(POLICIES, LEASE, "Ingress", SERVER, (port, "TCP")) is open_
    elsewhere = End("other", {"component": "singleuser-server"})
    for other in (elsewhere, LEASE, SERVICE, End(address="93.184.216.34")):
        assert not lets(POLICIES, LEASE, "Ingress", other, (port, "TCP"))


@pytest.mark.parametrize(
    ("hub", "url", "plain"),
    [
        ({}, "http://gpulease.gpulease-system:9980/services/gpulease/", True),
        (
            {"url": "https://hub.example.org/", "baseUrl": "/jupyter"},
            "https://hub.example.org/jupyter/services/gpulease/",
            False,
        ),
    ],
)
def test_agents_call_the_service_by_the_hubs_address_or_inside_the_cluster(
    hub, url, plain, tmp_path
):
    objects = {each["kind"]: each for each in shipped.load("agent/agent.yaml", values={"hub": hub})}
    assert objects["ConfigMap"]["data"]["service-url"] == url
    (container,) = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(container["args"][1:])
    assert given.plain_http is plain
    assert checked(Target(url, tmp_path), plain=given.plain_http).url == url


def test_agents_reach_the_service_and_pullers_nothing():
    marks = {labels.NAME: labels.APP, labels.COMPONENT: labels.AGENT_COMPONENT}
    agent = End(shipped.SYSTEM, marks)
    ours = shipped.load("agent/network.yaml"), shipped.load("service/network.yaml")
    for port, open_ in ((9980, True), (9981, False)):
        assert lets(ours[0], agent, "Egress", SERVICE, (port, "TCP")) is open_
        assert lets(ours[1], SERVICE, "Ingress", agent, (port, "TCP")) is open_
    puller = End(shipped.SYSTEM, marks | {labels.COMPONENT: "puller"})
    assert not lets(ours[1], SERVICE, "Ingress", puller, (9980, "TCP"))
    for each in (End(address="93.184.216.34"), SERVICE):
        closed = shipped.one("NetworkPolicy", "leases/puller.yaml")
        assert not lets([closed], puller, "Egress", each, (443, "TCP"))
