"""``setup_gpulease(c, ...)``: one call in ``jupyterhub_config.py`` that wires everything.

It adds to the site's settings and never replaces them; settings that contradict each other are
refused with a sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config

from gpulease.errors import GPULeaseError
from gpulease.hub import compat, merge, scopes
from gpulease.hub.wrapping import wrap_spawner

#: Holds ``home.html``.
TEMPLATES = Path(__file__).parent / "templates"


def setup_gpulease(
    c: Config,
    *,
    service_url: str,
    service_command: Sequence[str] | None = None,
    service_token: str | None = None,
    service_environment: Mapping[str, str] | None = None,
    service_user: str | None = None,
    allow_service_as_root: bool = False,
    service_name: str = "gpulease",
    server_service_url: str | None = None,
    spawner_class: Any = None,
    request_groups: Sequence[str] | None = None,
    instructors: Mapping[str, Sequence[str]] | None = None,
    admins: Sequence[str] = (),
    admin_groups: Sequence[str] = (),
    home_card: bool = True,
    whole_notebooks: bool = False,
) -> None:
    """Add gpulease to a hub's configuration ``c``.

    Call it after your own settings, so that it can see and keep them.

    Args:
        c: the configuration object of ``jupyterhub_config.py``.
        service_url: where the lease service listens, e.g. ``http://127.0.0.1:9980``.
        service_command: starts the service as a child of the hub, for one machine and for demos.
            Without it the service runs by itself (production: it must outlive the hub).
        service_token: the service's hub token; needed where there is no ``service_command``.
        service_environment: more variables for a service that the hub starts.
        service_user: the system user that a service started by a hub of root's runs as.
        allow_service_as_root: let it run as root all the same (throw-away machines only: whoever
            finds a hole in it has the machine).
        service_name: its name among the hub's services, and so in its address.
        server_service_url: the service's URL as notebook servers reach it, ending in
            ``/services/NAME/``; by default ``service_url`` with that path.
        spawner_class: class, import path or registered name; by default what the site has set.
        request_groups: only members of these groups may ask for a GPU; by default everybody.
        instructors: group name to the users who teach it.
        admins: users who administer GPUs; hub admins of ``Authenticator.admin_users`` do too.
        admin_groups: groups whose members administer GPUs.
        home_card: whether the hub's home page shows the card "Request GPU".
        whole_notebooks: whether people may have whole notebooks run (``gpulease submit``): named
            servers are switched on, and the service may start and stop servers.

    Raises:
        GPULeaseError: ``hub_config_conflict`` where the site uses one of our names,
            ``hub_config_invalid`` where an argument cannot be right.
    """
    _check(service_url, service_command, service_token)
    if service_command and not allow_service_as_root:
        _refuse_root(service_user)
    hub = c.JupyterHub
    service = _service(
        service_name,
        service_url,
        command=service_command,
        environment=service_environment,
        user=service_user,
        token=service_token,
    )
    merge.add_entries(
        hub, "custom_scopes", scopes.CUSTOM_SCOPES, setting="c.JupyterHub.custom_scopes"
    )
    merge.add_named(hub, "services", [service], setting="c.JupyterHub.services")
    _add_roles(
        c,
        service_name=service_name,
        request_groups=request_groups,
        instructors=instructors or {},
        admins=[*admins, *sorted(merge.updated(c.Authenticator, "admin_users"))],
        admin_groups=admin_groups,
        whole_notebooks=whole_notebooks,
    )
    if whole_notebooks:
        _allow_named_servers(hub)
    _add_spawner(
        c,
        spawner_class,
        service_name,
        server_service_url or f"{_root(service_url)}{base_path(c)}services/{service_name}/",
    )
    if home_card:
        _add_card(c, service_name)


def _service(
    name: str,
    url: str,
    *,
    command: Sequence[str] | None,
    environment: Mapping[str, str] | None,
    user: str | None,
    token: str | None,
) -> dict[str, Any]:
    """Return the hub's entry for the lease service."""
    service: dict[str, Any] = {
        "name": name,
        "url": url,
        "display": True,
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": scopes.oauth_scopes(name),
    }
    if command:
        service |= {"command": list(command), "environment": dict(environment or {})}
        service |= {"user": user} if user else {}
    else:
        service |= compat.expected_to_be_up()
    return service | ({"api_token": token} if token else {})


def _check(url: str, command: Sequence[str] | None, token: str | None) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise GPULeaseError(
            "hub_config_invalid",
            f"service_url must be an address such as http://127.0.0.1:9980, not {url!r}.",
            next_step="Give scheme, host and port of the lease service.",
        )
    if not command and not token:
        raise GPULeaseError(
            "hub_config_invalid",
            "A lease service that runs by itself needs a token to talk to the hub.",
            next_step="Give service_token (the service reads the same one from"
            " JUPYTERHUB_API_TOKEN), or service_command to let the hub start the service.",
        )


def _refuse_root(user: str | None) -> None:
    """Refuse a service that a hub of root's would start as root.

    Raises:
        GPULeaseError: ``hub_config_invalid``.
    """
    if user not in (None, "root", "0") or (user is None and os.geteuid() != 0):
        return
    raise GPULeaseError(
        "hub_config_invalid",
        "The lease service would run as root, which it never needs.",
        next_step="Give service_user, a system user of its own that owns the database's folder; or"
        " run the service by itself with service_token. On a machine to throw away:"
        " allow_service_as_root=True.",
    )


def _root(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def base_path(c: Config) -> str:
    """Return the hub's base path with both slashes, as the site set it by any of two settings."""
    if "base_url" in c.JupyterHub:
        path = str(c.JupyterHub.base_url)
    elif "bind_url" in c.JupyterHub:
        path = urlsplit(str(c.JupyterHub.bind_url)).path
    else:
        path = "/"
    inner = path.strip("/")
    return f"/{inner}/" if inner else "/"


def _add_roles(
    c: Config,
    *,
    service_name: str,
    request_groups: Sequence[str] | None,
    instructors: Mapping[str, Sequence[str]],
    admins: Sequence[str],
    admin_groups: Sequence[str],
    whole_notebooks: bool,
) -> None:
    roles = [scopes.service_role(service_name, whole_notebooks=whole_notebooks)]
    if admins or admin_groups:
        users = list(dict.fromkeys(admins))
        roles.append(scopes.admin_role(users, admin_groups, service_name))
    roles += [
        scopes.instructor_role(group, people, service_name) for group, people in instructors.items()
    ]
    person = scopes.user_scopes(service_name)
    if request_groups is None:
        compat.add_user_scopes(c, person)
    else:
        roles.append(
            {
                "name": "gpulease-user",
                "description": "May ask for a GPU",
                "scopes": person,
                "groups": list(request_groups),
            }
        )
    merge.add_named(c.JupyterHub, "load_roles", roles, setting="c.JupyterHub.load_roles")


def _allow_named_servers(hub: Any) -> None:
    """Switch named servers on, unless the site has switched them off by itself.

    Raises:
        GPULeaseError: ``hub_config_conflict``.
    """
    if "allow_named_servers" in hub and not hub.allow_named_servers:
        raise GPULeaseError(
            "hub_config_conflict",
            "Whole notebooks run in named servers, and c.JupyterHub.allow_named_servers is False.",
            next_step="Remove that setting, or whole_notebooks=True.",
        )
    hub.allow_named_servers = True


def _add_spawner(c: Config, spawner_class: Any, service_name: str, service_url: str) -> None:
    chosen = spawner_class
    if chosen is None:
        chosen = c.JupyterHub.spawner_class if "spawner_class" in c.JupyterHub else "localprocess"
    c.JupyterHub.spawner_class = wrap_spawner(chosen)
    c.GPULeaseSpawnerMixin.gpulease_service_name = service_name
    c.GPULeaseSpawnerMixin.gpulease_service_url = service_url


def _add_card(c: Config, service_name: str) -> None:
    """Put our home.html first; it extends the site's own where there is one, else the hub's."""
    hub = c.JupyterHub
    site = [Path(path) for path in merge.listed(hub, "template_paths")]
    own = next((path for path in site if (path / "home.html").is_file()), None)
    base = "templates/home.html"
    if own is not None:
        # Ours hides a page of the same name, so the site's is reached through its folder's name.
        base = f"{own.name}/home.html"
        merge.add_items(hub, "template_paths", [str(own.resolve().parent)])
    merge.add_items(hub, "template_paths", [str(TEMPLATES)], first=True)
    merge.add_entries(
        hub,
        "template_vars",
        {"gpulease_home_base": base, "gpulease_service_name": service_name},
        setting="c.JupyterHub.template_vars",
    )
