"""The description of the API, made from the very models that validate it.

Owns the list of operations with their sentence; schemas come from the models of the bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gpulease import __version__
from gpulease.errors import PROBLEM_TYPE
from gpulease.policy.model import LeaseState
from gpulease.service import agent_bodies, bodies, reservation_bodies
from gpulease.service.scopes import PUBLIC


@dataclass(frozen=True)
class Operation:
    """One method of one address."""

    method: str
    path: str
    summary: str
    body: type[BaseModel] | None = None
    query: tuple[str, ...] = ()


_PAGE = ("offset", "limit")
OPERATIONS = (
    Operation("get", "leases", "The leases one may see.", query=("state", "mine", *_PAGE)),
    Operation("post", "leases", "Ask; a repeated ask is the same ask.", bodies.AskBody),
    Operation("get", "leases/{id}", "One lease."),
    Operation("delete", "leases/{id}", "Return, withdraw or end.", bodies.EndBody),
    Operation("get", "leases/{id}/events", "What happened to a lease, who did it and why."),
    Operation("post", "leases/{id}/keep", "Keep an idle lease a while.", bodies.EmptyBody),
    Operation(
        "post", "leases/{id}/connections", "Admit a home kernel's key.", bodies.ConnectionBody
    ),
    Operation("get", "classes", "What is on offer and what is free."),
    Operation("get", "servers", "The asker's running servers."),
    Operation("get", "incidents", "What went wrong around leases, newest first.", query=_PAGE),
    Operation(
        "get", "reservations", "Reservations one may see.", query=("group", "cancelled", *_PAGE)
    ),
    Operation(
        "post", "reservations", "Reserve GPUs for a group.", reservation_bodies.ReservationBody
    ),
    Operation(
        "post", "reservations/check", "What would fit; a dry run.", reservation_bodies.CheckBody
    ),
    Operation("get", "reservations.ics", "They as an iCalendar.", query=("group",)),
    Operation("get", "reservations/{id}/attendance.csv", "Who came to its windows."),
    Operation("get", "reservations/{id}", "One reservation with its windows."),
    Operation("patch", "reservations/{id}", "Change it.", reservation_bodies.ChangeBody),
    Operation("delete", "reservations/{id}", "Cancel it.", bodies.EndBody),
    Operation("get", "me", "Who the service takes the asker for."),
    Operation("get", "policy", "The policy in force."),
    Operation("put", "policy", "Put another text into force, at once.", bodies.PolicyBody),
    Operation("post", "policy/check", "What is wrong with a text.", bodies.PolicyBody),
    Operation("get", "policy/versions", "Versions, newest first.", query=_PAGE),
    Operation("get", "policy/versions/{version}", "One version with its text."),
    Operation(
        "post", "agents/batches", "What a node agent saw, for its own node.", agent_bodies.AgentPost
    ),
    Operation("get", "health", "Whether the service works."),
    Operation("get", "openapi.json", "This description."),
    Operation("get", "events", "Websocket: snapshot, then changes.", query=("resume",)),
    Operation("get", "leases/{id}/supervisor", "Websocket of the lease's own supervisor."),
)


def description(prefix: str, needs: Callable[[Operation], tuple[str, ...]]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a service under ``prefix``.

    Args:
        needs: the scopes of which an operation needs one.
    """
    models = {operation.body for operation in OPERATIONS if operation.body is not None}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"/{operation.path}", {})[operation.method] = _operation(
            operation, needs(operation)
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpulease", "version": __version__},
        "servers": [{"url": f"{prefix}api"}],
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Problem": _PROBLEM},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "Authorization"}
            },
        },
    }


_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "reason"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "reason": {"type": "string", "description": "machine-readable code"},
        "numbers": {"type": "object"},
        "next_step": {"type": "string"},
    },
}


_FLAG = {"type": "string", "enum": ["", "0", "1", "false", "true"]}
_SCHEMAS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    "version": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    "offset": {"type": "integer", "minimum": 0, "maximum": 10**9, "default": 0},
    "limit": {"type": "integer", "minimum": 0, "maximum": 200},
    "state": {"type": "string", "enum": ["", "live", *LeaseState]},
    "mine": _FLAG,
    "cancelled": _FLAG,
    "group": {"type": "string"},
    "resume": {"type": "integer", "minimum": 0},
}


def _operation(operation: Operation, scopes: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": operation.summary,
        # Of an API key OpenAPI 3.1 takes these as roles; one of them is enough.
        "security": [] if scopes == (PUBLIC,) else [{"token": [scope]} for scope in scopes],
        "parameters": [
            *(
                _parameter("path", part[1:-1])
                for part in operation.path.split("/")
                if part[0] == "{"
            ),
            *(_parameter("query", name) for name in operation.query),
        ],
        "responses": {
            "2XX": {"description": "JSON", "content": {"application/json": {}}},
            "default": {
                "description": "a problem (RFC 9457)",
                "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


def _parameter(where: str, name: str) -> dict[str, Any]:
    schema = _SCHEMAS[name]
    return {"name": name, "in": where, "required": where == "path", "schema": schema}
