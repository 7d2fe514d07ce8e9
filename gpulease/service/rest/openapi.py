"""The description of the API, made from the marks of the handlers and the shapes that they name.

It is an OpenAPI 3.1 document, and says which refusals every request may meet.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaMode

from gpulease import __version__
from gpulease.errors import PROBLEM_TYPE
from gpulease.service.rest.answering import KEY_MAX, reader
from gpulease.service.rest.base import PUBLIC, BaseHandler, Operation, Text
from gpulease.service.schemas.shapes import Problem
from gpulease.service.workers import Workers

_REF: Final = "#/components/schemas/{model}"
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    "version": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
}
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A repeat with the same key is the same request.",
    "schema": {"type": "string", "maxLength": KEY_MAX},
}


class Description:
    """The document as text: made once, when somebody asks first, for it takes long."""

    def __init__(self, prefix: str, operations: Iterable[Operation]) -> None:
        self._prefix, self._operations = prefix, operations
        self._made: asyncio.Future[str] | None = None

    async def text(self, workers: Workers) -> str:
        """Return it; whoever asks while it is made waits for the same one."""
        if self._made is None:
            self._made = asyncio.ensure_future(workers.thread("openapi.json", self._make))
        return await asyncio.shield(self._made)

    def _make(self) -> str:
        return json.dumps(description(self._prefix, self._operations))


def description(prefix: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a service under ``prefix``."""
    listed = list(operations)
    schemas = _Schemas(listed)
    paths: dict[str, dict[str, Any]] = {}
    for operation in listed:
        found = _operation(operation, schemas)
        paths.setdefault(f"/{operation.path}", {})[operation.method] = found
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpulease", "version": __version__},
        "servers": [{"url": f"{prefix}api"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "Authorization"}
            },
        },
    }


class _Schemas:
    """The JSON schemas of all shapes, each named once."""

    def __init__(self, operations: list[Operation]) -> None:
        # By shape and mode: what is sent may leave out what has a default, what is answered not.
        wanted: dict[tuple[Any, JsonSchemaMode], None] = {(Problem, "serialization"): None}
        for operation in operations:
            said = operation.described
            shapes = (each for each in said.shapes.values() if not isinstance(each, Text))
            wanted |= dict.fromkeys((each, "serialization") for each in shapes if each is not None)
            if said.body is not None:
                wanted[said.body, "validation"] = None
        self._found, document = TypeAdapter.json_schemas(
            [(shape, mode, TypeAdapter(shape)) for shape, mode in wanted], ref_template=_REF
        )
        self.components: dict[str, Any] = document.get("$defs", {})

    def of(self, shape: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """Return the schema that stands for a shape."""
        return dict(self._found[shape, mode])


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    said = operation.described
    problem = {
        "description": "a problem (RFC 9457)",
        "content": {PROBLEM_TYPE: {"schema": schemas.of(Problem, "serialization")}},
    }
    found: dict[str, Any] = {
        "operationId": _identifier(operation),
        "summary": operation.summary,
        # Of an API key OpenAPI 3.1 takes these as roles; one of them is enough.
        "security": [{"token": [each]} for each in operation.scopes if each != PUBLIC],
        "parameters": _parameters(operation),
        "responses": {
            str(status): problem for status in sorted(_refusals(operation) - set(said.shapes))
        },
    }
    for status, shape in said.shapes.items():
        found["responses"][str(status)] = _answer(shape, schemas)
    if said.body is not None:
        needed = not _is_whole(said.body, {})
        content = {"application/json": {"schema": schemas.of(said.body, "validation")}}
        found["requestBody"] = {"content": content, "required": needed}
    return found


def _is_whole(body: type[Any], value: Any) -> bool:
    try:
        reader(body).validate_python(value)
    except ValidationError:
        return False
    return True


def _refusals(operation: Operation) -> set[int]:
    """Return the statuses with which a request may be refused."""
    said = operation.described
    found = {400, 413, *said.refuses}
    if issubclass(operation.handler, BaseHandler):
        found |= {401, 403, 426, 429, 502, 503}
    if "{" in operation.path:
        found.add(404)
    if said.query is not None:
        found.add(422)
    if said.body is not None:
        found |= {415, 422}
    return found


def _answer(shape: Any, schemas: _Schemas) -> dict[str, Any]:
    if shape is None:
        return {"description": "a websocket"}
    if isinstance(shape, Text):
        return {"description": "text", "content": {shape.media: {"schema": {"type": "string"}}}}
    schema = schemas.of(shape, "serialization")
    return {"description": "JSON", "content": {"application/json": {"schema": schema}}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    said = operation.described
    found = [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    if said.query is not None:
        schema = said.query.model_json_schema()
        found += [
            {"name": name, "in": "query", "required": False, "schema": each}
            for name, each in schema["properties"].items()
        ]
    return [*found, _KEY] if said.repeatable else found


def _identifier(operation: Operation) -> str:
    words = re.findall(r"[a-z]+", operation.path)
    return "_".join((operation.method, *words))
