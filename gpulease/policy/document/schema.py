"""The JSON Schema of the policy document: what an editor completes, and what tools check against.

Made from the very key lists that the readers check by.  It says what may stand where, in which
form; what must fit together (a class's pool, a project's parent) only ``check`` can say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpulease.policy.document.elastic_section import ELASTIC
from gpulease.policy.document.nodes import MOST
from gpulease.policy.document.pod_section import KEYS, PRESETS, WHERE
from gpulease.policy.document.projects_section import BUDGET, PROJECT, SHARES
from gpulease.policy.document.reader import CLASS, LIMITS, POOL, TOP
from gpulease.policy.document.reservation_section import GROUP, SECTION
from gpulease.policy.document.time_outs_section import form
from gpulease.policy.document.warm_section import WARM
from gpulease.policy.model import EvidenceLevel
from gpulease.policy.pods import AskKind, MIGStrategy, Sharing
from gpulease.policy.projects import AtZero
from gpulease.policy.states import ClickRuns, DevicesBy
from gpulease.policy.units import format_duration

_DURATION = {"type": ["string", "number"], "pattern": r"^\s*(\d+(\.\d+)?([dhms]|$))+\s*$"}
_SIZE = {"type": ["string", "integer"], "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?B)?$"}
_DAY = {"type": "string", "format": "date"}
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "number", "minimum": 0, "maximum": MOST}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": MOST}
_ONE = {"type": "integer", "minimum": 1, "maximum": MOST}
_PARTS = {"type": "integer", "minimum": 0, "maximum": 100}
_TEXTS = {"type": "array", "items": _TEXT}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of the document."""
    found = _object(TOP, _top(), required=["pools", "classes"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Policy", **found}


def _top() -> dict[str, Any]:
    return {
        "default_class": _said("The class that who names none gets.", _TEXT),
        "pools": _said("Groups of alike devices.", _map(_object(POOL, _pool()))),
        "classes": _said("What people ask for.", _map(_object(CLASS, _class(), ["pool"]))),
        "time_outs": _said("When a GPU is taken back.", _time_outs()),
        "limits": _said("How much one may have or ask.", _limits()),
        "click_runs_cells": _said(
            "Which cells run on a GPU that was asked for by a click.", _enum(ClickRuns)
        ),
        "reservations": _said("What groups may reserve.", _reservations()),
        "shares": _said("How past use counts.", _object(SHARES, _shares())),
        "projects": _said("Who shares the GPUs, and how.", _map(_object(PROJECT, _project()))),
    }


def _limits() -> dict[str, Any]:
    durations = ("batch_wait", "batch_cell", "gang_hold_max", "share_harm")
    return _object(LIMITS, dict.fromkeys(durations, _DURATION), rest=_ONE)


def _pool() -> dict[str, Any]:
    return {
        "evidence": _said("How use is seen.", _enum(EvidenceLevel)),
        "spare": _said("Devices that are kept free.", _WHOLE),
        "paused": _said("Nothing of it is granted.", _FLAG),
        "elastic": _said("How it grows.", _object(ELASTIC, _elastic(), ["max"])),
        "parts": _said("Into so many parts each card is divided; 0 is not at all.", _PARTS),
    }


def _elastic() -> dict[str, Any]:
    return {
        "max": _said("Devices that it may have at most.", _ONE),
        "firm": _said("Devices that are always there; reservations count on these.", _WHOLE),
        "provision_time": _said("What adding a node usually takes.", _DURATION),
        "max_pending": _said("Lease pods that may wait for nodes at once.", _ONE),
        "spot": _said("The cloud may take its nodes back at short notice.", _FLAG),
    }


def _class() -> dict[str, Any]:
    return {
        "pool": _said("The pool that its devices are of.", _TEXT),
        "title": _said("What people read.", _TEXT),
        "memory": _said("Of one device, such as 16GiB.", _SIZE),
        "max_count": _said("The most devices of one request.", _ONE),
        "price": _said("GPU-hours that a budget pays for an hour of one device.", _NUMBER),
        "time_outs": _time_outs(),
        "fallback": _said("Classes that serve where this one is full.", _TEXTS),
        "pod": _said("What a lease's pod asks for.", _object(KEYS, _pod(), rest={})),
        "warm": _said("How many of its pods stand ready ahead.", _object(WARM, _warm())),
        "parts": _said("How many parts of a card one GPU of it is.", _ONE),
        "devices_by": _said(
            "How a lease names its devices on one machine: index for libraries that need numbers.",
            _enum(DevicesBy),
        ),
        "steps": _said("With so many parts a lease can go on.", {"type": "array", "items": _ONE}),
    }


def _warm() -> dict[str, Any]:
    return {
        "pods": _said("Outside of the hours that are named.", _WHOLE),
        "hours": _said("By hours of the week, such as Mon-Fri 08:00-18:00.", _map(_WHOLE)),
        "zone": _TEXT,
    }


def _time_outs() -> dict[str, Any]:
    found = {}
    for field in form():
        if field.counted:
            found[field.name] = _said(f"Default {field.default:g}.", _WHOLE)
            continue
        longest = f"; at most {format_duration(field.most)}" if field.most else ""
        found[field.name] = _said(f"Default {format_duration(field.default)}{longest}.", _DURATION)
    return _object(tuple(found), found)


def _pod() -> dict[str, Any]:
    return {
        "kind": _said("How the cluster gives devices out.", _enum(AskKind)),
        "amount": _ONE,
        "slot_units": _WHOLE,
        "strategy": _enum(MIGStrategy),
        "sharing": _enum(Sharing),
        "several_shares": _FLAG,
        "compute_percent": _said("Of a card's compute, under MPS; at most 100.", _WHOLE),
        "where": _object(WHERE, {}, rest={}),
        **{name: {} for name in PRESETS},
    }


def _reservations() -> dict[str, Any]:
    durations = ("advance", "longest", "lead", "grace", "extension", "extra_time")
    idle = {"least": _DURATION, "most": _DURATION}
    closure = {"from": _DAY, "to": _DAY, "title": _TEXT}
    group = {
        "classes": _TEXTS,
        "gpu_hours": _NUMBER,
        "windows": _WHOLE,
        "advance": _DURATION,
        "managers": _said("People who may reserve for the group.", _TEXTS),
        "image": _said("Image of the pods on the group's seats.", _TEXT),
    }
    return _object(
        SECTION,
        {
            **dict.fromkeys(durations, _DURATION),
            "gpu_hours": _NUMBER,
            "windows": _WHOLE,
            "idle": _object(tuple(idle), idle),
            "classes": _TEXTS,
            "closures": _map(_object(tuple(closure), closure, ["from", "to"])),
            "groups": _map(_object(GROUP, group)),
        },
    )


def _shares() -> dict[str, Any]:
    return {"half_life": _DURATION, "strength": _NUMBER}


def _project() -> dict[str, Any]:
    member = _object(("weight", "limit"), {"weight": _NUMBER, "limit": _WHOLE})
    share = _object(("guarantee", "limit"), {}, rest=_WHOLE)
    return {
        "title": _TEXT,
        "group": _said("The hub group of its members.", _TEXT),
        "parent": _said("The project above it.", _TEXT),
        "everyone": _said("Whoever is in no other project.", _FLAG),
        "weight": _NUMBER,
        "pools": _map(share),
        "classes": _TEXTS,
        "members": member,
        "people": _map(member),
        "budget": _object(BUDGET, _budget()),
    }


def _budget() -> dict[str, Any]:
    return {
        "gpu_hours": _NUMBER,
        "each": _NUMBER,
        "people": _map(_NUMBER),
        "from": _DAY,
        "to": _DAY,
        "zone": _TEXT,
        "at_zero": _enum(AtZero),
        "contact": _TEXTS,
    }


def _object(
    names: Sequence[str],
    members: dict[str, Any],
    required: Sequence[str] = (),
    rest: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the schema of a mapping with these keys; ``rest`` is of those not in ``members``."""
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: members.get(name, rest or {}) for name in names},
        "additionalProperties": False,
    }
    return found | ({"required": list(required)} if required else {})


def _map(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


def _enum(of: Any) -> dict[str, Any]:
    return {"enum": [each.value for each in of]}


def _said(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "description": description}
