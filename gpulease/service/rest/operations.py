"""What each method of a handler takes and answers, shown where the method stands.

Owns the marks from which the API's description is made, and the operations that they add up to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from tornado.web import RequestHandler

from gpulease.service.rest.scopes import needed

METHODS: Final = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Text:
    """An answer that is no JSON."""

    media: str


#: A websocket's first answer; what is said on it stands in ``protocol``.
WEBSOCKET: Final[Mapping[int, Any]] = {101: None}


@dataclass(frozen=True)
class Described:
    """What a method takes and answers.

    Attributes:
        answers: by status, the shape of a good answer: a type, ``Text``, or ``None`` for no body.
        body: the shape of its body.
        query: the model of its query.
        refuses: statuses of refusals beyond those that every request may meet.
        repeatable: takes an ``Idempotency-Key``.
    """

    answers: Mapping[int, Any]
    body: type[Any] | None = None
    query: type[BaseModel] | None = None
    refuses: tuple[int, ...] = ()
    repeatable: bool = False


@dataclass(frozen=True)
class Operation:
    """One method of one address."""

    method: str
    path: str
    handler: type[RequestHandler]

    @property
    def described(self) -> Described:
        """What it takes and answers."""
        found: Described = getattr(self.handler, self.method).described
        return found

    @property
    def summary(self) -> str:
        """The first sentence of the method's own words."""
        said = getattr(self.handler, self.method).__doc__ or ""
        return str(said).partition("\n\n")[0].replace("\n", " ").strip()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of which it needs one."""
        return needed(self.handler, self.method)


F = TypeVar("F", bound=Callable[..., Any])


def answers(
    shapes: Mapping[int, Any],
    *,
    body: type[Any] | None = None,
    query: type[BaseModel] | None = None,
    refuses: tuple[int, ...] = (),
    repeatable: bool = False,
) -> Callable[[F], F]:
    """Mark a handler's method with what it takes and answers; see ``Described``."""

    def mark(method: F) -> F:
        found = Described(shapes, body, query, refuses, repeatable)
        method.described = found  # type: ignore[attr-defined]
        return method

    return mark


def operations(api: Mapping[str, type[RequestHandler]]) -> Iterator[Operation]:
    """Yield every operation of a table of addresses."""
    for path, handler in api.items():
        for method in METHODS:
            if hasattr(getattr(handler, method), "described"):
                yield Operation(method, path, handler)
