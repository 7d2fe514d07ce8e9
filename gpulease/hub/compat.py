"""What only JupyterHub 6 has, with what stands in for it on 5.

Every difference between the versions that matters to ``gpulease.hub`` is handled here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traitlets.config import Config

from gpulease.hub import merge

#: The ``user`` role's scopes where nobody redefined it; the same on 5 and 6.
_USER_ROLE_SCOPES = ("self",)


def hub_version() -> tuple[int, int]:
    """Return the installed JupyterHub's major and minor version."""
    import jupyterhub

    major, minor = jupyterhub.version_info[:2]
    return int(major), int(minor)


def add_user_scopes(
    c: Config, scopes: Sequence[str], *, version: tuple[int, int] | None = None
) -> None:
    """Give every person these scopes.

    From 6.0 by ``extra_user_scopes``.  On 5.x, or where the site redefines the ``user`` role (the
    hub then ignores ``extra_user_scopes``), by extending that role, whose other scopes stay.
    """
    roles = merge.listed(c.JupyterHub, "load_roles")
    own = next((role for role in roles if _redefines_user(role)), None)
    if own is not None:
        own["scopes"] = list(dict.fromkeys([*own["scopes"], *scopes]))
    elif (version or hub_version()) >= (6, 0):
        merge.add_members(c.JupyterHub, "extra_user_scopes", scopes)
    else:
        partial = next((role for role in roles if _names_user(role)), None)
        if partial is not None:
            partial["scopes"] = [*_USER_ROLE_SCOPES, *scopes]
        else:
            role = {"name": "user", "scopes": [*_USER_ROLE_SCOPES, *scopes]}
            merge.add_items(c.JupyterHub, "load_roles", [role])


def expected_to_be_up(*, version: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return settings of a service that runs by itself: a hub that starts does not wait for it.

    From 6.0 a hub waits 30 seconds for such a service before it has any route, and then goes on
    without it; 5.x waits one second.
    """
    return {"timeout": 1} if (version or hub_version()) >= (6, 0) else {}


def spawn_refused(message: str, *, reason: str, log_message: str) -> Exception:
    """Return the error that refuses a spawn: ``message`` for the person, the rest for the log.

    From 6.0 a ``SpawnException``, whose ``reason`` also labels the hub's metrics.  On 5.x an
    ``HTTPError``, whose ``log_message`` the hub's API shows to the person: what is for the log
    alone must have been logged by then.
    """
    if hub_version() >= (6, 0):
        from jupyterhub.spawner import SpawnException

        refused: Exception = SpawnException(message, reason=reason, log_message=log_message)
    else:
        from tornado.web import HTTPError

        refused = HTTPError(400, "%s", message, reason=reason)
        refused.jupyterhub_message = message  # type: ignore[attr-defined]  # the hub's pages
    return refused


def _names_user(role: Any) -> bool:
    return isinstance(role, Mapping) and role.get("name") == "user"


def _redefines_user(role: Any) -> bool:
    return _names_user(role) and "scopes" in role
