"""Least privilege of the lease service: what is granted is used, and no less would do.

The audit log of a replaced service, two leases (a whole card, a claim) and a look by the doctor
is compared with the shipped rights; then each rule is taken away in turn, and a recorded request
is refused.
"""

import asyncio
from dataclasses import replace

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from gpulease.commands.doctor import look
from gpulease.protocol import labels
from testcluster.api import Object
from testcluster.cluster import Cluster
from testcluster.configuration import PAUSE_IMAGE
from testcluster.devices import card
from testcluster.dra_driver import driver
from testcluster.pods import pod
from testcluster.rights import Given, Grant, account_of, given, lacks
from testcluster.site import settings, shipped
from testcluster.site.people import LONG, Student, at_work
from testcluster.site.site import Site
from tests.helm_values.shipped import needs_helm
from tests.helpers import wait_for, wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ACCOUNT = f"system:serviceaccount:{shipped.OWN_NAMESPACE}:gpulease"
needs_helm()


def roles() -> list[Given]:
    """Return what is shipped for the service, each role where its binding makes it count."""
    return given(shipped.documents(), "gpulease")


def grant_of(event: Object, granted: set[Grant]) -> Grant:
    """Return the grant by which a request was allowed, or the one that it would have needed."""
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    wide = Grant("", about.get("apiGroup", ""), resource, event["verb"])
    return wide if wide in granted else replace(wide, namespace=about.get("namespace", ""))


async def a_strangers_token(site: Site, lease: str) -> str:
    """Show the service the token of a pod that runs as lease pods do and is none of this lease."""
    api, name = site.cluster.api, "stranger"
    spec = {
        "serviceAccountName": "gpulease-lease",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "x", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}],
    }
    metadata = {"name": name, "namespace": shipped.HUB_NAMESPACE}
    path = f"/api/v1/namespaces/{shipped.HUB_NAMESPACE}"
    made = api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": ["gpulease"], "boundObjectRef": bound},
        }
        account = f"{path}/serviceaccounts/gpulease-lease/token"
        token = api.request("POST", account, body)["status"]["token"]
        address = settings.url(
            site.settings.ports.service, f"{settings.PREFIX}api/leases/{lease}/supervisor"
        )
        request = HTTPRequest(
            address.replace("http", "ws", 1), headers={"Authorization": f"Bearer {token}"}
        )
        with pytest.raises(HTTPClientError) as refused:
            await websocket_connect(request)
        return str(refused.value.code)
    finally:
        api.delete(f"{path}/pods/{name}")


async def a_name_in_the_way(site: Site, student: Student) -> str:
    """Get a lease whose pod's name is taken: the service looks whose it is, and takes another."""
    cluster = site.cluster
    cluster.devices(unhealthy=tuple(card(number) for number in range(4)))
    try:
        await wait_for_async(lambda: site.allocatable() == 0, LONG, "no device on offer")
        cell = asyncio.ensure_future(student.run("%%gpu\nprint('here')"))
        await student.watch.wait_for("queued", seconds=LONG)
        lease = student.watch.lease
        assert lease is not None
        name = labels.lease_pod_name(lease["id"], 1)
        cluster.api.create(pod(shipped.HUB_NAMESPACE, name, image=PAUSE_IMAGE))
    finally:
        cluster.devices(unhealthy=())
    try:
        await cell
    finally:
        cluster.api.delete(f"/api/v1/namespaces/{shipped.HUB_NAMESPACE}/pods/{name}")
    return str(lease["id"])


@pytest.fixture(scope="module")
def recorded(site: Site) -> list[Object]:
    """What the service asked of the API server, from its start through two leases to their end."""
    return asyncio.run(_work(site))


async def _work(site: Site) -> list[Object]:
    cluster = site.cluster
    site.kill("service")
    before = len(cluster.audited())
    with driver(cluster):
        site.start("service")
        async with at_work(site, "ada") as ada:
            lease = await a_name_in_the_way(site, ada)
            assert await a_strangers_token(site, lease) == "403"
            await ada.watch.wait_for("ended", seconds=LONG)
            await ada.run("%%gpu --class claim\nprint('there')")
            await ada.watch.wait_for("ended", seconds=LONG)
            await look(str(site.settings.directory / "service.py"), {})
        wait_for(lambda: not site.lease_pods(), LONG, "the lease pods to be gone")
    return [
        each
        for each in cluster.audited()[before:]
        if each["user"]["username"] == ACCOUNT
        and "objectRef" in each
        # What it may itself, every account may ask.
        and each["objectRef"]["resource"] != "selfsubjectaccessreviews"
    ]


def test_what_is_granted_is_used_and_nothing_is_refused(recorded: list[Object]) -> None:
    granted = {grant for each in roles() for grant in each.grants()}
    refused = [
        each
        for each in recorded
        if each["annotations"].get("authorization.k8s.io/decision") != "allow"
        or (each["responseStatus"].get("code") == 403 and "dryRun" not in each["requestURI"])
    ]
    assert refused == []
    assert {grant_of(each, granted) for each in recorded} == granted


#: The first rule of each role each time, the others at night.
RULES = [
    pytest.param(each.role, number, marks=[pytest.mark.nightly] if number else [])
    for each in roles()
    for number in range(len(each.rules))
]


@pytest.mark.parametrize(("role", "number"), RULES)
def test_without_one_rule_a_recorded_request_is_refused(
    cluster: Cluster, recorded: list[Object], role: str, number: int
) -> None:
    granted = {grant for each in roles() for grant in each.grants()}
    (one,) = [each for each in roles() if each.role == role]
    lost = set(one.grants_of(one.rules[number]))
    event = next(
        each
        for each in recorded
        if grant_of(each, granted) in lost
        and each["verb"] != "watch"  # a list does as well
        and "dryRun" not in each["requestURI"]
    )
    with account_of(cluster.api, "whole", roles()) as whole:
        wait_for(lambda: not lacks(whole, event), 90, "the rights are known")
    left = [
        replace(each, rules=[rule for rule in each.rules if rule != one.rules[number]])
        if each.role == role
        else each
        for each in roles()
    ]
    other = next(
        each
        for each in recorded
        if grant_of(each, granted) not in lost
        and each["verb"] not in ("watch", "delete")
        and "dryRun" not in each["requestURI"]
    )
    with account_of(cluster.api, f"less-{role}-{number}", left) as less:
        wait_for(lambda: not lacks(less, other), 90, "the other rights are known")
        assert lacks(less, event)
