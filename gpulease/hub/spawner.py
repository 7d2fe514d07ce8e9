"""Makes any spawner start servers that can lease GPUs, and have none of their own.

It sets the environment and the token scopes of such a server; the wrapped spawner decides where
servers run.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable
from typing import Any

from jupyterhub import orm
from traitlets import Bool, List, Unicode
from traitlets.config import LoggingConfigurable

from gpulease.hub import scopes
from gpulease.hub.local_ports import OwnPortMixin
from gpulease.protocol import names as protocol


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

    gpulease_shared_variables = List(
        Unicode(),
        config=True,
        help="Environment variables that GPU cells have although they hold secrets, as HF_TOKEN."
        " A notebook may name more for itself: %gpu config env NAME.",
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
        if self.gpulease_shared_variables:
            env[protocol.ENV_SHARED] = ",".join(self.gpulease_shared_variables)
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


class LocalGPULeaseSpawner(GPULeaseSpawnerMixin, OwnPortMixin):
    """Servers as processes of this machine's users, with GPUs leased by the local provider."""
