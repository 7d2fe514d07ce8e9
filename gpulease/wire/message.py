"""A message of the transfer wire with its JSON head, and the reply that a caller waits for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpulease.errors import GPULeaseError


@dataclass
class Message:
    """A complete message: ``body`` is its JSON, ``blobs`` writable memory of this process."""

    number: int
    kind: str
    body: dict[str, Any]
    blobs: list[Any] = field(default_factory=list)
    reply_to: int | None = None


class Pending:
    """The reply to come; ``wait`` may be interrupted."""

    def __init__(self, number: int, progress: Callable[[int, int], None] | None) -> None:
        self.number = number
        self.progress = progress
        self.done = threading.Event()
        self.message: Message | None = None
        self.error: GPULeaseError | None = None

    def wait(self, seconds: float | None = None) -> Message | None:
        """Return the reply, or None after ``seconds``; raises what the other side refused with."""
        if not self.done.wait(seconds):
            return None
        if self.error is not None:
            raise self.error
        return self.message

    def finish(self, message: Message | None, error: GPULeaseError | None) -> None:
        """Let the waiting caller go on."""
        self.message, self.error = message, error
        self.done.set()


#: Taken when this is imported: a notebook may replace ``json.dumps``.
_json = json.JSONEncoder().encode


def header(**fields: Any) -> bytes:
    """Return the first frame of a message."""
    return _json(fields).encode()


def read_header(frame: bytes) -> dict[str, Any]:
    """Return what ``header`` wrote, with the members that its kind needs.

    Raises:
        ValueError: it is none.
    """
    try:
        head = json.loads(frame)
    except RecursionError:
        head = None
    if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
        raise ValueError("not a header")  # noqa: TRY004 - as JSON that does not parse
    if not all(_is_text(head.get(name)) for name in _TEXTS.get(head["kind"], ())):
        raise ValueError("a header without its texts")
    control = _WHOLE.get(head["kind"])
    whole = [head.get(name) for name in (("number",) if control is None else control)]
    if control is None:
        sizes, answered = head.get("sizes"), head.get("reply_to")
        whole.append(head.get("beside", 0))
        whole += sizes if isinstance(sizes, list) else [None]
        whole += [answered] if answered is not None else []
        if not isinstance(head.get("body"), dict) or not isinstance(head.get("inline"), bool):
            raise ValueError("a header without its body")
    if not all(map(_is_whole, whole)):
        raise ValueError("a header without its numbers")
    name, fits = _ROWS.get(head["kind"], ("", bool))
    rows = head.get(name) if name else []
    if not isinstance(rows, list) or not all(_is_row(row, fits) for row in rows):
        raise ValueError("a header without its rows")
    return head


def _is_whole(each: object) -> bool:
    return type(each) is int and 0 <= each < 2**63


def _is_text(each: object) -> bool:
    # A lone surrogate, which JSON can say, is a text that cannot be written as bytes.
    return isinstance(each, str) and each.isprintable()


def _is_row(row: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(map(fits, row))


#: The whole numbers of those messages that carry no request and no answer.
_WHOLE = {
    "get": ("offer", "blob", "at"),
    "piece": ("offer", "blob", "at"),
    "got": ("offer",),
    "cancel": ("cancel",),
    "near": (),
    "far": (),
    "second": (),
    "second.door": ("port",),
    "second.no_door": (),
    "second.unreached": (),
    "second.ready": (),
    "second.fetch": ("stream",),
    "second.cut": (),
}
#: The texts of such a message.
_TEXTS = {
    "near": ("name", "call", "answer"),
    "second.door": ("bulk",),
    "second.no_door": ("why",),
    "second.unreached": ("bulk",),
    "second.ready": ("bulk",),
    "second.fetch": ("bulk",),
    "second.cut": ("bulk",),
}
#: And its rows of three: what they are called, and what is in them.
_ROWS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "second.door": ("keys", _is_text),
    "second.fetch": ("pieces", _is_whole),
}
#: What the second wire is about: said to the server, to the client, and to either.
SECOND_TO_SERVER = frozenset(("second", "second.unreached", "second.ready"))
SECOND_TO_CLIENT = frozenset(("second.door", "second.no_door"))
SECOND_TO_BOTH = frozenset(("second.fetch", "second.cut"))


def malformed_error() -> GPULeaseError:
    """Return what a receiver gets when the sender sent something else than it had announced."""
    return GPULeaseError("malformed", "The other side sent something else than it had announced.")


def no_memory_error(total: int) -> GPULeaseError:
    """Return what a receiver gets that cannot take ``total`` bytes."""
    return GPULeaseError(
        "no_memory",
        f"There is no memory for the {total} bytes that were to come.",
        numbers={"bytes": total},
    )


def gone_error() -> GPULeaseError:
    """Return what waiting callers get when the other side is lost."""
    return GPULeaseError(
        "companion_gone",
        "The companion on the GPU is gone.",
        next_step="Run the cell again: it gets a new companion.",
    )


def withdrawn_error() -> GPULeaseError:
    """Return what a receiver gets when the sender took its offer back."""
    return GPULeaseError("transfer_abandoned", "The other side began to compute again.")
