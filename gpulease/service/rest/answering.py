"""How the service reads a body and writes an answer, whoever asks.

The size of a body is bounded here; every answer gets the security headers, and every refusal has
one form (RFC 9457).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from tornado.http1connection import HTTP1Connection
from tornado.web import Finish, HTTPError, RequestHandler, stream_request_body

from gpulease.errors import PROBLEM_TYPE, GPULeaseError
from gpulease.service.context import Services
from gpulease.service.languages import answer_in, language_of, problem_in
from gpulease.service.logs import reference
from gpulease.service.schemas.bodies import PageQuery
from gpulease.service.schemas.problems import BODY, QUERY, meant, place, problem_of, sentence

log = logging.getLogger(__name__)

#: Bytes of a request's body, where the handler says nothing else.
BODY_MAX = 64 * 1024
#: Characters of a key by which a repeat is known.
KEY_MAX = 200
#: Bytes of a body that is refused which are read and thrown away: who is hung up on while sending
#: may never read the refusal (RFC 9112, section 9.6).
_DISCARDED = 2**20
#: Seconds after which to try again what is refused for being too much, if nothing else is known.
_LATER = 60
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_API_POLICY = "default-src 'none'; frame-ancestors 'none'"

M = TypeVar("M")


def reader(shape: type[M]) -> TypeAdapter[M]:
    """Return what reads values of a shape."""
    return _reader(cast("Any", shape))


@cache
def _reader(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


@stream_request_body
class Answers(RequestHandler):
    """Writes problems, and headers that suit data; authenticates nobody.

    Nothing of a body is kept before ``admit`` has let its sender in.
    """

    body_max = BODY_MAX
    as_page = False  # pages answer a refusal in words, everything else as a problem
    may_be_framed = False  # the hub shows it inside a page of its own
    _refused = _gone = False
    _work: asyncio.Future[Any] | None = None

    @property
    def services(self) -> Services:
        """What the application is made of."""
        found: Services = self.settings["services"]
        return found

    async def prepare(self) -> None:
        """Look at the headers alone: how long the body is, and who sends it.

        A refusal is answered when the body is over, unless it is too long to wait for.
        """
        self._body = bytearray()
        connection = cast(HTTP1Connection, self.request.connection)
        connection.set_max_body_size(max(self.body_max, _DISCARDED))
        declared = self.request.headers.get("Content-Length", "0")
        length = int(declared) if declared.isdecimal() else 0
        try:
            if length > self.body_max:
                raise self._too_large(length)
            await self.admit()
        except GPULeaseError as error:
            if length > _DISCARDED or "Expect" in self.request.headers:
                raise
            self._refuse_after_body(error)

    async def admit(self) -> None:
        """Let the sender in, or raise."""

    def data_received(self, chunk: bytes) -> None:
        """Keep a piece of the body, if it is not refused."""
        if self._refused:
            return
        self._body += chunk
        if len(self._body) > self.body_max:
            self._refuse_after_body(self._too_large(len(self._body)))

    def set_default_headers(self) -> None:
        """Data is never framed, sniffed or kept by caches."""
        self.set_header("Content-Security-Policy", _API_POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def compute_etag(self) -> None:
        """No entity tags: answers are not cached."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer a problem; anything that is not meant for people becomes ``internal``."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        problem = self._problem(status_code, error)
        self.set_status(problem.status)
        if problem.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.set_header("Allow", ", ".join(self.allowed_methods()))
        if problem.status == HTTPStatus.UNAUTHORIZED:
            self.set_header("WWW-Authenticate", "Bearer")  # RFC 9110 wants one; browsers ask nobody
        if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
            self.set_header("Retry-After", str(problem.numbers.get("retry_after", _LATER)))
        self.services.metrics.refused(problem.reason)
        problem = problem_in(language_of(self.request), problem)
        if self.as_page:
            self.refuse(problem)
            return
        self.set_header("Content-Type", PROBLEM_TYPE)
        self.finish(json.dumps(problem.to_problem()))

    def refuse(self, problem: GPULeaseError) -> None:
        """Answer a refusal in words; pages show it in their own look."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{problem}\n")

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what is our fault, with the reference that the person is told."""
        if isinstance(value, (GPULeaseError, asyncio.CancelledError)) or (
            isinstance(value, HTTPError) and value.status_code < 500
        ):
            return  # what is cancelled has nobody left who waits for it, or the service stops
        self._reference = reference()
        log.error(
            "%s %s failed",
            self.request.method,
            self.request.path,
            exc_info=(typ, value, tb),
            extra={"ref": self._reference},
        )

    def bearer(self) -> str:
        """Return the token of the ``Authorization`` header, ``""`` for none."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    async def unless_gone(self, work: Coroutine[Any, Any, M]) -> M:
        """Return what some work gives that changes nothing; it ends when its asker hangs up."""
        task: asyncio.Future[M] = asyncio.ensure_future(work)
        self._work = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._gone:
                raise Finish from None  # nobody reads the answer
            raise

    def on_connection_close(self) -> None:
        """End what was worked out for whoever has hung up."""
        super().on_connection_close()
        self._gone = True
        if self._work is not None:
            self._work.cancel()

    def parse(self, model: type[M]) -> M:
        """Return the body as ``model``.

        Raises:
            GPULeaseError: ``not_json``, ``malformed_json``, ``invalid_body``.
        """
        body = self._body
        media = self.request.headers.get("Content-Type", "application/json").partition(";")[0]
        if body and media.strip().lower() != "application/json":
            raise GPULeaseError(
                "not_json", "The body must be application/json.", numbers={"got": media}
            )
        try:
            found = json.loads(body.decode("utf-8")) if body else {}
            if b"\\u" in body:  # halves of a pair of surrogates are no text
                json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            raise GPULeaseError(
                "malformed_json", "The body is not JSON.", numbers={"line": line}
            ) from None
        try:
            return reader(model).validate_python(found)
        except ValidationError as error:
            raise _invalid("invalid_body", BODY, error, reader(model), found) from None

    def query(self, model: type[M]) -> M:
        """Return what stands in the address's query as ``model``; nothing may stand there twice.

        Raises:
            GPULeaseError: ``invalid_query``.
        """
        # As it was sent: tornado's own way takes blanks and control characters away before a look.
        given = {
            name: [self.decode_argument(value, name) for value in values]
            for name, values in self.request.query_arguments.items()
        }
        single = {name: found[0] if len(found) == 1 else found for name, found in given.items()}
        try:
            return reader(model).validate_python(single)
        except ValidationError as error:
            raise _invalid("invalid_query", QUERY, error, reader(model), single) from None

    def repeat_key(self) -> str:
        """Return the key by which a repeat is known, ``""`` for none.

        Raises:
            GPULeaseError: ``invalid_key``.
        """
        key = self.request.headers.get("Idempotency-Key", "")
        if len(key) > KEY_MAX:
            raise GPULeaseError(
                "invalid_key",
                f"An Idempotency-Key has at most {KEY_MAX} characters.",
                numbers={"max": KEY_MAX},
            )
        return key

    def answer(self, value: Any, status: int = 200) -> None:
        """Write a JSON answer, its texts in the reader's language."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(answer_in(language_of(self.request), value)))

    def answer_page(self, items: Sequence[Any], total: int, query: PageQuery) -> None:
        """Write a page of a list."""
        about = {"total": total, "offset": query.offset, "limit": query.limit}
        self.answer({"items": items, **about})

    def _refuse_after_body(self, error: GPULeaseError) -> None:
        """Have the request's method raise ``error`` in place of what it does."""

        def refuse(*_: Any) -> None:
            raise error

        self._refused = True
        self._body.clear()
        setattr(self, str(self.request.method).lower(), refuse)

    def _too_large(self, length: int) -> GPULeaseError:
        return GPULeaseError(
            "body_too_large",
            "The body of this request is too large.",
            numbers={"bytes": length, "max": self.body_max},
        )

    def _problem(self, status: int, error: BaseException | None) -> GPULeaseError:
        if isinstance(error, GPULeaseError):
            return error
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            return GPULeaseError(
                "method_not_allowed",
                f"{self.request.method} is not possible here.",
                numbers={"allowed": self.allowed_methods()},
                status=status,
            )
        if status < 500:
            phrase = HTTPStatus(status).phrase.lower()
            return GPULeaseError(
                phrase.replace(" ", "_"), f"The request was refused: {phrase}.", status=status
            )
        found = getattr(self, "_reference", "")
        return GPULeaseError(
            "internal",
            "Something went wrong on our side.",
            next_step=f"Try again; if it stays, tell an admin the reference {found}.",
            numbers={"reference": found},
            status=status,
        )

    def allowed_methods(self) -> list[str]:
        """Return the methods that this handler answers."""
        unimplemented = RequestHandler.get  # every method that a handler does not define
        return [name for name in _METHODS if getattr(type(self), name.lower()) is not unimplemented]


class NotFound(Answers):
    """Everything that is not here."""

    async def admit(self) -> None:
        """Refuse.

        Raises:
            GPULeaseError: ``not_found``.
        """
        raise GPULeaseError("not_found", "There is nothing at this address.")


def _invalid(
    reason: str, what: str, error: ValidationError, known: TypeAdapter[Any], given: Any
) -> GPULeaseError:
    """Return the refusal that names each wrong member."""
    found = error.errors(include_url=False, include_input=False)
    wrong = [
        {"member": ".".join(str(part) for part in each["loc"]), "problem": problem_of(each)}
        for each in found
    ]
    return GPULeaseError(
        reason,
        sentence(place(found[0]["loc"], given) or what, problem_of(found[0])),
        next_step=meant(found[0], known),
        numbers={"wrong": wrong},
        status=422,
    )
