"""Shipped rights as data, who has them where, and a user with some of them for a test.

Roles are read with their bindings, so that least privilege is proved of what really counts: a
ClusterRole that only a RoleBinding names counts in that namespace alone.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from testcluster.api import Api, ApiError, Object, path_of

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Grant:
    """One verb on one resource, in one namespace or ("") in the whole cluster."""

    namespace: str
    group: str
    resource: str
    verb: str


@dataclass(frozen=True)
class Given:
    """A role's rules where they count: in one namespace, or ("") everywhere."""

    role: str
    namespace: str
    rules: list[Object]

    def grants(self) -> set[Grant]:
        return {grant for rule in self.rules for grant in self.grants_of(rule)}

    def grants_of(self, rule: Object) -> Iterator[Grant]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Grant(self.namespace, group, resource, verb)


def given(documents: Iterable[Object], account: str) -> list[Given]:
    """Return what these objects give a service account."""
    every = [each for each in documents if each.get("apiVersion") == f"{RBAC}/v1"]
    roles = {(each["kind"], each["metadata"]["name"]): each for each in every if "rules" in each}
    return [
        Given(
            each["roleRef"]["name"],
            each["metadata"].get("namespace", ""),
            roles[each["roleRef"]["kind"], each["roleRef"]["name"]]["rules"],
        )
        for each in every
        if "roleRef" in each and account in {subject["name"] for subject in each["subjects"]}
    ]


class account_of:
    """A user of a test's own with some rights, for a block."""

    def __init__(self, api: Api, name: str, some: Iterable[Given]) -> None:
        self.api, self.user = api, f"least-{name}"
        self.made: list[Object] = []
        self.some = list(some)

    def __enter__(self) -> Api:
        subject = {"apiGroup": RBAC, "kind": "User", "name": self.user}
        for each in self.some:
            scope = {"namespace": each.namespace} if each.namespace else {}
            prefix = "" if each.namespace else "Cluster"
            metadata = {"name": f"{self.user}-{each.role}", **scope}
            role = {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{prefix}Role",
                "metadata": metadata,
                "rules": copy.deepcopy(each.rules),
            }
            binding = {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{prefix}RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": metadata["name"]},
                "subjects": [subject],
            }
            for document in (role, binding):
                self.api.create(document)
                self.made.append(document)
        return Api(self.api.kubeconfig, as_user=self.user)

    def __exit__(self, *_: object) -> None:
        for document in self.made:
            self.api.remove(path_of(document))


def lacks(client: Api, event: Object) -> bool:
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
        return error.status == 403 and any(
            words in error.message for words in (" cannot ", "attempting to grant RBAC")
        )
    return False
