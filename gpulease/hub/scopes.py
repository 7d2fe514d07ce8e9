"""The names of gpulease's scopes and roles, and the lists made of them.

The lists give each party its permissions: the service, a person, an instructor, an admin and a
notebook server.  Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

REQUEST: Final = "custom:gpulease:request"
RESERVE: Final = "custom:gpulease:reserve"
ADMIN: Final = "custom:gpulease:admin"

#: For ``JupyterHub.custom_scopes``.
CUSTOM_SCOPES: Final[dict[str, dict[str, Any]]] = {
    REQUEST: {"description": "Ask for a GPU, watch, keep and return one's own leases"},
    RESERVE: {"description": "See and reserve GPUs for a group"},
    ADMIN: {
        "description": "See and end every lease, and change the GPU policy",
        "subscopes": [REQUEST, RESERVE],
    },
}

#: What the service itself asks of the hub: who is in which group, which servers are active, and
#: to note that a server with a busy lease is in use.  With these it can neither start nor stop
#: anything.
SERVICE_SCOPES: Final = (
    "list:users",
    "list:groups",
    "read:groups",
    "read:users:name",
    "read:users:groups",
    "read:users:activity",
    "read:servers",
    "users:activity",
)

#: What it needs beside for runs of whole notebooks: to start and remove their servers.  JupyterHub
#: has no scope for named servers alone, and JupyterHub 5 none for starting alone.
RUN_SCOPES: Final = ("servers",)

#: A server's token without gpulease, where the ``server`` role cannot be read.
DEFAULT_SERVER_SCOPES: Final = ("users:activity!user", "access:servers!server")


def user_scopes(service_name: str) -> list[str]:
    """Return what a person needs to ask for a GPU: reach the service, and ask for themselves."""
    return [f"access:services!service={service_name}", f"{REQUEST}!user"]


def server_scopes(site: Iterable[str], service_name: str) -> list[str]:
    """Return the site's scopes of a server token with what gpulease needs added.

    ``access:servers!server`` is among them: it tells the service which server is asking.
    """
    ours = ["access:servers!server", "users:activity!user", *user_scopes(service_name)]
    return list(dict.fromkeys([*site, *ours]))


def oauth_scopes(service_name: str) -> list[str]:
    """Return the most that a person's login at the service may carry."""
    return [f"access:services!service={service_name}", REQUEST, RESERVE, ADMIN]


def role_name(prefix: str, group: str) -> str:
    """Return a valid role name for any group name; different groups get different names."""
    plain = re.sub(r"[^a-z0-9\-_~.]", "-", group.lower()).strip("-_~.")
    if plain == group:
        return f"{prefix}-{plain}"
    mark = hashlib.sha256(group.encode()).hexdigest()[:8]
    return f"{prefix}-{plain}-{mark}" if plain else f"{prefix}-{mark}"


def service_role(service_name: str, *, whole_notebooks: bool = False) -> dict[str, Any]:
    """Return the role of the lease service."""
    return {
        "name": "gpulease-service",
        "description": "The GPU lease service",
        "scopes": [*SERVICE_SCOPES, *(RUN_SCOPES if whole_notebooks else ())],
        "services": [service_name],
    }


def instructor_role(group: str, instructors: Sequence[str], service_name: str) -> dict[str, Any]:
    """Return the role of those who teach ``group``: they see its leases and reserve for it."""
    return {
        "name": role_name("gpulease-instructor", group),
        "description": f"Instructors of {group}: see the group's GPU leases and reserve for it",
        "scopes": [
            f"access:services!service={service_name}",
            f"{RESERVE}!group={group}",
            f"list:users!group={group}",
            f"read:groups!group={group}",
        ],
        "users": list(instructors),
    }


def admin_role(users: Sequence[str], groups: Sequence[str], service_name: str) -> dict[str, Any]:
    """Return the role of those who administer GPUs (not the hub)."""
    return {
        "name": "gpulease-admin",
        "description": "Administer GPU leases and policy",
        "scopes": [f"access:services!service={service_name}", ADMIN],
        "users": list(users),
        "groups": list(groups),
    }
