"""Which class starts a site's servers: its own spawner with gpulease before it."""

from __future__ import annotations

from typing import Any

from jupyterhub.spawner import LocalProcessSpawner

from gpulease.errors import GPULeaseError
from gpulease.hub.local_ports import OwnPortMixin
from gpulease.hub.spawner import GPULeaseSpawnerMixin


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
    own_port = (OwnPortMixin,) if issubclass(found, LocalProcessSpawner) else ()
    return type(f"GPULease{found.__name__}", (GPULeaseSpawnerMixin, *own_port, found), {})


def _guarded(found: type) -> type:
    """Return a KubeSpawner, or a site's own kind of it, with the manifest guard."""
    from gpulease.hub.kubernetes import GPULeaseSpawner  # it needs KubeSpawner

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
