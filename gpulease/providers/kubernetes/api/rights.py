"""What the API server lets this account do, asked of it."""

from __future__ import annotations

from typing import Final

from gpulease.providers.kubernetes.api.client import Client, Resource

_REVIEWS: Final = Resource("selfsubjectaccessreviews", "authorization.k8s.io")


async def may(client: Client, verb: str, group: str, resource: str, namespace: str) -> bool:
    """Whether this account may do so ("pods/exec" has a subresource) in a namespace.

    Args:
        client: of the account.
        verb: "create" and the like.
        group: of the API, "" for the core's.
        resource: its plural name.
        namespace: "" is everywhere.

    Raises:
        ClientError: the API server does not answer.
    """
    plain, _, part = resource.partition("/")
    asked = {
        "verb": verb,
        "group": group,
        "resource": plain,
        "subresource": part,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }
    answer = await client.create(_REVIEWS, body)
    return bool(answer.get("status", {}).get("allowed"))
