"""Least privilege of the lease service: what is granted is used, and no less would do.

The audit log of a replaced service and two leases (a whole card, a claim) is compared with the
shipped rights; then each rule is taken away in turn, and a recorded request is refused.
"""

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from gpulease import labels
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.cluster import Cluster
from tests.cluster.configuration import PAUSE_IMAGE
from tests.cluster.devices import card
from tests.cluster.dra_driver import driver
from tests.cluster.pods import pod
from tests.cluster.site import settings, shipped
from tests.cluster.site.people import LONG, Student, at_work
from tests.cluster.site.site import Site
from tests.helpers import wait_for, wait_for_async

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ACCOUNT = f"system:serviceaccount:{shipped.OWN_NAMESPACE}:gpulease"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Grant:
    """One verb on one resource, in one namespace or ("") in the whole cluster."""

    namespace: str
    group: str
    resource: str
    verb: str


def roles() -> list[Object]:
    """Return the Role and the ClusterRole that are shipped for the service."""
    return [
        each
        for each in shipped.documents()
        if each["kind"] in {"Role", "ClusterRole"}
        and each["metadata"]["name"] == "gpulease-service"
    ]


def grants(role: Object) -> set[Grant]:
    return {grant for rule in role["rules"] for grant in grants_of(role, rule)}


def grants_of(role: Object, rule: Object) -> Iterator[Grant]:
    namespace = role["metadata"].get("namespace", "")
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Grant(namespace, group, resource, verb)


def grant_of(event: Object, granted: set[Grant]) -> Grant:
    """Return the grant by which a request was allowed, or the one that it would have needed."""
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    wide = Grant("", about.get("apiGroup", ""), resource, event["verb"])
    return wide if wide in granted else Grant(about.get("namespace", ""), *_rest(wide))


def _rest(grant: Grant) -> tuple[str, str, str]:
    return grant.group, grant.resource, grant.verb


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
        wait_for(lambda: not site.lease_pods(), LONG, "the lease pods to be gone")
    return [
        each
        for each in cluster.audited()[before:]
        if each["user"]["username"] == ACCOUNT and "objectRef" in each
    ]


def test_what_is_granted_is_used_and_nothing_is_refused(recorded: list[Object]) -> None:
    granted = {grant for role in roles() for grant in grants(role)}
    refused = [
        each
        for each in recorded
        if each["annotations"].get("authorization.k8s.io/decision") != "allow"
        or each["responseStatus"].get("code") == 403
    ]
    assert refused == []
    assert {grant_of(each, granted) for each in recorded} == granted


RULES = [(role["kind"], number) for role in roles() for number in range(len(role["rules"]))]


@pytest.mark.parametrize(("kind", "number"), RULES)
def test_without_one_rule_a_recorded_request_is_refused(
    cluster: Cluster, recorded: list[Object], kind: str, number: int
) -> None:
    granted = {grant for role in roles() for grant in grants(role)}
    (role,) = [each for each in roles() if each["kind"] == kind]
    lost = set(grants_of(role, role["rules"][number]))
    event = next(
        each
        for each in recorded
        if grant_of(each, granted) in lost and each["verb"] != "watch"  # a list does as well
    )
    with account_of(cluster.api, "whole", roles()) as whole:
        wait_for(lambda: not _rights_lack(whole, event), 90, "the rights are known")
    left = copy.deepcopy(roles())
    for each in left:
        if each["kind"] == kind:
            del each["rules"][number]
    other = next(
        each
        for each in recorded
        if grant_of(each, granted) not in lost and each["verb"] not in ("watch", "delete")
    )
    with account_of(cluster.api, f"less-{kind.lower()}-{number}", left) as less:
        wait_for(lambda: not _rights_lack(less, other), 90, "the other rights are known")
        assert _rights_lack(less, event)


class account_of:
    """A user of a test's own with the rights of some roles, for a block."""

    def __init__(self, api: Api, name: str, given: list[Object]) -> None:
        self.api, self.user = api, f"least-{name}"
        self.made: list[str] = []
        self.given = given

    def __enter__(self) -> Api:
        subject = {"apiGroup": RBAC, "kind": "User", "name": self.user}
        for role in copy.deepcopy(self.given):
            namespace = role["metadata"].get("namespace", "")
            role["metadata"] = {"name": self.user} | ({"namespace": namespace} if namespace else {})
            reference = {"apiGroup": RBAC, "kind": role["kind"], "name": self.user}
            binding = {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{role['kind']}Binding",
                "metadata": role["metadata"],
                "roleRef": reference,
                "subjects": [subject],
            }
            for each in (role, binding):
                self.api.create(each)
                inside = f"/namespaces/{namespace}" if namespace else ""
                plural = f"{each['kind'].lower()}s"
                self.made.append(f"/apis/{RBAC}/v1{inside}/{plural}/{self.user}")
        return Api(self.api.kubeconfig, as_user=self.user)

    def __exit__(self, *_: object) -> None:
        for path in self.made:
            self.api.delete(path)


def _rights_lack(client: Api, event: Object) -> bool:
    """Ask again (dry run where it changes something); tell whether a right was missing."""
    method = {"create": "POST", "delete": "DELETE"}.get(event["verb"], "GET")
    path = event["requestURI"].partition("?")[0]
    body: Any = None
    query = {"dryRun": "All"} if method != "GET" else {"limit": "1"}
    if event["verb"] == "create":
        body = event["requestObject"]
    try:
        client.request(method, path, body, **query)
    except ApiError as error:
        return error.status == 403 and " cannot " in error.message
    return False
