"""Makes any spawner start servers that can lease GPUs, and have none of their own.

Owns the environment and the token scopes of such a server.  Refuses to know where servers run
(that is the wrapped spawner's) and how leases work (that is the service's).
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable
from typing import Any

from jupyterhub import orm
from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Bool, Unicode
from traitlets.config import LoggingConfigurable

from gpulease import protocol
from gpulease.errors import GPULeaseError
from gpulease.hub import scopes


class GPULeaseSpawnerMixin(LoggingConfigurable):
    """Put before any spawner class: ``class S(GPULeaseSpawnerMixin, KubeSpawner)``.

    ``setup_gpulease(c)`` does so by itself.  It merges: the site's ``environment`` and
    ``server_token_scopes`` (list or callable, set on whichever class) keep their effect.
    """

    gpulease_service_name = Unicode(
        "gpulease", config=True, help="Name of the lease service among the hub's services."
    )
    gpulease_service_url = Unicode(
        "",
        config=True,
        help="URL of the lease service as a notebook server reaches it, with trailing slash.",
    )
    gpulease_autoload = Bool(
        True, config=True, help="Whether kernels load gpulease without %load_ext."
    )
    gpulease_hide_gpus = Bool(
        True,
        config=True,
        help="Whether GPUs of the machine are hidden from the home kernel: it has none.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_token_scopes: Any
        # After all configuration, whichever class it was given for.
        self.server_token_scopes = _merged_token_scopes(self.server_token_scopes)

    def get_env(self) -> dict[str, str]:
        """Return the server's environment with gpulease's part added."""
        env: dict[str, str] = super().get_env()  # type: ignore[misc]  # the wrapped spawner's
        if self.gpulease_service_url:
            env[protocol.ENV_SERVICE_URL] = self.gpulease_service_url
        if self.gpulease_autoload:
            env.setdefault(protocol.ENV_AUTOLOAD, "1")
        # Home kernel and companion must hash alike, or sets would change their order on the way.
        # Any number will do; a fresh one for each spawn keeps hashes as unpredictable as ever.
        env.setdefault("PYTHONHASHSEED", str(secrets.randbelow(2**32)))
        if self.gpulease_hide_gpus:
            env["CUDA_VISIBLE_DEVICES"] = ""
            env["NVIDIA_VISIBLE_DEVICES"] = "void"
        return env


def _merged_token_scopes(site: Any) -> Callable[[Any], Any]:
    """Return a callable for ``server_token_scopes`` that adds ours to the site's."""

    async def merged(spawner: Any) -> list[str]:
        asked = site(spawner) if callable(site) else site
        if inspect.isawaitable(asked):
            asked = await asked
        return scopes.server_scopes(
            asked or _server_role_scopes(spawner), spawner.gpulease_service_name
        )

    return merged


def _server_role_scopes(spawner: Any) -> list[str]:
    """Return the scopes of the hub's ``server`` role, which a token without a list would get."""
    role = orm.Role.find(spawner.user.db, "server")
    return list(role.scopes) if role is not None else list(scopes.DEFAULT_SERVER_SCOPES)


class LocalGPULeaseSpawner(GPULeaseSpawnerMixin, LocalProcessSpawner):
    """Servers as processes of this machine's users, with GPUs leased by the local provider."""


def wrap_spawner(spawner_class: Any) -> type:
    """Return ``spawner_class`` with the mixin before it, or itself where it has it already.

    ``spawner_class`` is a class, an import path or a name registered with the hub (``simple``).

    Raises:
        GPULeaseError: ``hub_config_invalid`` when there is no such spawner.
    """
    found = _resolve(spawner_class)
    if any(base.__module__.startswith("kubespawner.") for base in found.__mro__):
        return _guarded(found)
    if issubclass(found, GPULeaseSpawnerMixin):
        return found
    # `c.KubeSpawner.x = ...` still reaches it: traitlets goes by every class in the MRO.
    return type(f"GPULease{found.__name__}", (GPULeaseSpawnerMixin, found), {})


def _guarded(found: type) -> type:
    """Return a KubeSpawner, or a site's own kind of it, with the manifest guard."""
    from gpulease.hub.kubernetes import GPULeaseSpawner

    if issubclass(found, GPULeaseSpawner):
        return found
    if issubclass(GPULeaseSpawner, found):  # plain KubeSpawner
        return GPULeaseSpawner
    return type(f"GPULease{found.__name__}", (GPULeaseSpawner, found), {})


def _resolve(spawner_class: Any) -> type:
    if isinstance(spawner_class, type):
        return spawner_class
    from importlib.metadata import entry_points

    from traitlets import import_item

    name = str(spawner_class)
    for point in entry_points(group="jupyterhub.spawners"):
        if point.name.lower() == name.lower():
            return point.load()  # type: ignore[no-any-return]
    try:
        found = import_item(name)
    except ImportError as error:
        found = error
    if not isinstance(found, type):
        raise GPULeaseError(
            "hub_config_invalid",
            f"There is no spawner {name!r}.",
            next_step="Give a spawner class, its import path or its registered name.",
        )
    return found
