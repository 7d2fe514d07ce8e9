"""Adds to a hub's configuration without replacing what the site has set.

A setting can stand in three ways: unset, begun with ``append``/``update`` (traitlets keeps such
values unfinished), or set as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from gpulease.errors import GPULeaseError


def conflict(setting: str, what: str) -> GPULeaseError:
    """Return the error for a site's setting that cannot stand beside ours."""
    return GPULeaseError(
        "hub_config_conflict",
        f"{setting} already has {what}, which setup_gpulease would have to replace.",
        next_step="Rename or remove yours, or call setup_gpulease with another name.",
    )


def listed(section: Config, name: str) -> list[Any]:
    """Return the items a list setting has so far, finished or not."""
    value = section.get(name)
    if isinstance(value, LazyConfigValue):
        parts = value.to_dict()
        inserted = [item for _, item in parts.get("inserts", [])]
        return [*parts.get("prepend", []), *inserted, *parts.get("extend", [])]
    return list(value or [])


def updated(section: Config, name: str) -> Any:
    """Return what a set or dict setting has so far, finished or not."""
    value = section.get(name)
    if isinstance(value, LazyConfigValue):
        value = value.to_dict().get("update")
    return value or {}


def add_items(section: Config, name: str, items: Sequence[Any], *, first: bool = False) -> None:
    """Add to a list setting, at its end or ``first``; a default that stands is kept too."""
    value = section.get(name)
    if value is None:
        value = section[name] = LazyConfigValue()
    if isinstance(value, LazyConfigValue):
        (value.prepend if first else value.extend)(list(items))
    else:
        section[name] = [*items, *value] if first else [*value, *items]


def add_members(section: Config, name: str, members: Iterable[str]) -> None:
    """Add to a set setting."""
    value = section.get(name)
    if isinstance(value, LazyConfigValue):
        value.update(set(members))
    else:
        section[name] = set(value or ()) | set(members)


def add_entries(section: Config, name: str, entries: Mapping[str, Any], *, setting: str) -> None:
    """Add to a dict setting.

    Raises:
        GPULeaseError: ``hub_config_conflict`` when the site has another value under one key.
    """
    present = updated(section, name)
    for key, entry in entries.items():
        if key in present and present[key] != entry:
            raise conflict(setting, f"another {key!r}")
    value = section.get(name)
    if isinstance(value, LazyConfigValue):
        value.update(dict(entries))
    else:
        section[name] = {**(value or {}), **entries}


def add_named(section: Config, name: str, specs: Sequence[dict[str, Any]], *, setting: str) -> None:
    """Append dicts that carry a ``name`` (services, roles) to a list setting.

    Raises:
        GPULeaseError: ``hub_config_conflict`` when the site uses one of the names.
    """
    taken = {spec.get("name") for spec in listed(section, name) if isinstance(spec, Mapping)}
    for spec in specs:
        if spec["name"] in taken:
            raise conflict(setting, f"one named {spec['name']!r}")
    add_items(section, name, specs)
