"""Dynamic resource allocation: a class as a ResourceClaimTemplate, and which devices would match.

A DRA ask becomes a template of ``resource.k8s.io/v1`` with its conditions as CEL.  The same
conditions are evaluated on a ResourceSlice's device to count capacity.  The attributes' names are
those of NVIDIA's driver.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from gpulease.policy.pods import DRA_DRIVER, PodAsk, device_class_of
from gpulease.protocol import labels

#: Name of the one request in each claim, and of the claim in the pod.
REQUEST: Final = "gpu"

_UNITS: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{unit: Decimal(1000**n) for n, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024**n) for n, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([a-zA-Z]*)")


def template_name(gpu_class: str, ask: PodAsk, count: int, owner: str = "") -> str:
    """Return the template's name: another ask gives another name, so none is ever changed.

    ``owner`` is the uid of the pod with which it goes, "" where it stays for everybody.
    """
    text = json.dumps(claim_spec(ask, count), sort_keys=True) + owner
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return labels.object_name(f"gpulease-{gpu_class.lower()}-{count}-{digest}")


def claim_template(
    gpu_class: str,
    ask: PodAsk,
    count: int,
    *,
    namespace: str,
    instance: str,
    owner: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the ResourceClaimTemplate from which each lease pod of the class gets its claim.

    It stands in the servers' namespace; that it exists already (HTTP 409) is as good as created.

    Args:
        owner: the reference to the pod with which it goes, where one request alone asks so.
    """
    marks = {
        labels.NAME: labels.APP,
        labels.COMPONENT: labels.CLAIM_COMPONENT,
        labels.INSTANCE: labels.label_value(instance),
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": template_name(gpu_class, ask, count, str(owner["uid"]) if owner else ""),
            "namespace": namespace,
            "labels": marks,
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": {"metadata": {"labels": marks}, "spec": claim_spec(ask, count)},
    }


def claim_spec(ask: PodAsk, count: int) -> dict[str, Any]:
    """Return the spec of a claim for ``count`` devices."""
    wanted: dict[str, Any] = {
        "deviceClassName": device_class_of(ask),
        "allocationMode": "ExactCount",
        "count": count,
    }
    selectors = [{"cel": {"expression": each}} for each in expressions(ask)]
    if selectors:
        wanted["selectors"] = selectors
    devices: dict[str, Any] = {"requests": [{"name": REQUEST, "exactly": wanted}]}
    if ask.topology and count > 1:
        devices["constraints"] = [{"requests": [REQUEST], "matchAttribute": ask.topology}]
    return {"devices": devices}


def expressions(ask: PodAsk) -> list[str]:
    """Return the ask's conditions on a device as CEL; a device must meet them all."""
    where = ask.where
    domain = ask.driver or DRA_DRIVER
    attribute = f"device.attributes['{domain}']"
    memory = f"device.capacity['{domain}'].memory"
    compute = f"{attribute}.cudaComputeCapability"
    found = []
    if ask.profile:
        found.append(f"{attribute}.profile == '{ask.profile}'")
    if where.memory_min:
        found.append(f"{memory}.compareTo(quantity('{_quantity(where.memory_min)}')) >= 0")
    if where.memory_max:
        found.append(f"{memory}.compareTo(quantity('{_quantity(where.memory_max)}')) <= 0")
    if where.compute_min:
        found.append(f"{compute}.compareTo(semver('{where.compute_min}.0')) >= 0")
    if where.compute_max:
        found.append(f"{compute}.compareTo(semver('{where.compute_max}.0')) <= 0")
    if where.products:
        names = ", ".join(f"'{name.replace(' ', '-')}'" for name in where.products)
        # Names are compared as feature discovery writes them, so that one document fits both.
        found.append(f"{attribute}.productName.replace(' ', '-') in [{names}]")
    return found


def device_fits(ask: PodAsk, driver: str, device: Mapping[str, Any]) -> bool:
    """Whether a device of a ResourceSlice would satisfy the claim.

    Args:
        ask: of kind ``dra``.
        driver: the slice's ``spec.driver``.
        device: one member of the slice's ``spec.devices``.
    """
    domain = ask.driver or DRA_DRIVER
    if driver != domain:
        return False
    attributes = _unqualified(device.get("attributes") or {}, domain)
    kind = _text(attributes.get("type"))
    if kind and kind != ("mig" if ask.profile else "gpu"):
        return False
    if ask.profile and _text(attributes.get("profile")) != ask.profile:
        return False
    return _memory_fits(ask, device, domain) and _model_fits(ask, attributes)


def device_memory(device: Mapping[str, Any], domain: str = DRA_DRIVER) -> int:
    """Return a device's memory in bytes; 0 where its slice does not say."""
    capacity = _unqualified(device.get("capacity") or {}, domain)
    return quantity((capacity.get("memory") or {}).get("value", "0"))


def device_compute(device: Mapping[str, Any], domain: str = DRA_DRIVER) -> tuple[int, int] | None:
    """Return a device's CUDA capability, ``None`` where its slice does not say."""
    told = _unqualified(device.get("attributes") or {}, domain).get("cudaComputeCapability") or {}
    found = version(str(told.get("version", "")))
    return (found[0], found[1]) if found else None


def device_text(device: Mapping[str, Any], name: str, domain: str = DRA_DRIVER) -> str:
    """Return a text attribute of a device (``uuid``, ``productName``); "" where it has none."""
    return _text(_unqualified(device.get("attributes") or {}, domain).get(name))


def quantity(text: str) -> int:
    """Return a Kubernetes quantity as a whole number, rounded down.

    Raises:
        ValueError: it is no quantity.
    """
    return int(amount(text))


def amount(text: str) -> Decimal:
    """Return a Kubernetes quantity.

    Raises:
        ValueError: it is no quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is no quantity")
    return Decimal(match[1]) * _UNITS[match[2]]


def _memory_fits(ask: PodAsk, device: Mapping[str, Any], domain: str) -> bool:
    memory, where = device_memory(device, domain), ask.where
    return where.memory_min <= memory and (not where.memory_max or memory <= where.memory_max)


def _model_fits(ask: PodAsk, attributes: Mapping[str, Any]) -> bool:
    where = ask.where
    compute = version((attributes.get("cudaComputeCapability") or {}).get("version", ""))
    if where.compute_min and (not compute or compute < version(where.compute_min)):
        return False
    if where.compute_max and (not compute or compute > version(where.compute_max)):
        return False
    name = _text(attributes.get("productName")).replace(" ", "-")
    return not where.products or name in {each.replace(" ", "-") for each in where.products}


def _unqualified(members: Mapping[str, Any], domain: str) -> dict[str, Any]:
    """Return a device's members by bare name: the driver's own may be written with its domain."""
    return {
        name.removeprefix(f"{domain}/"): value
        for name, value in members.items()
        if "/" not in name or name.startswith(f"{domain}/")
    }


def _text(value: Mapping[str, Any] | None) -> str:
    return str((value or {}).get("string", ""))


def version(text: str) -> tuple[int, ...]:
    """Return major, minor, patch of a version; empty where it is none."""
    parts = text.split(".")
    if not all(part.isdecimal() for part in parts):
        return ()
    return tuple(int(part) for part in [*parts, "0", "0"][:3])


def _quantity(size: int) -> str:
    for unit in ("Ti", "Gi", "Mi"):
        if size % int(_UNITS[unit]) == 0:
            return f"{size // int(_UNITS[unit])}{unit}"
    return str(size)
