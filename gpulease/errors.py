"""The one exception that reaches people.

A refusal has a reason code, a sentence, the numbers behind it and what to do next, and a form on
the wire (RFC 9457 problem details).  Everything else that goes wrong is a logged error with a
reference id, and reaches people as reason ``internal``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: What a problem's members are called on the wire; ``reason``, ``numbers`` and ``next_step`` are
#: our extension members (RFC 9457, section 3.2).
PROBLEM_TYPE = "application/problem+json"


def copied(
    kind: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> BaseException:
    """Make an error of ``kind`` again, whatever its class takes: for ``copy`` and ``pickle``.

    By Python's own way it would be called with ``args``: a worker's refusal could not be raised in
    the process that waits for it.  How IPython is to show it is not taken along.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


#: The HTTP status of a reason that has one of its own, wherever it is raised; all others are 400.
_STATUS: Final = {
    reason: status
    for status, reasons in (
        (404, ("no_notebook", "unknown_node", "unknown_person")),
        (409, (
            "cell_running", "device_taken", "keep_not_possible", "keep_used_up", "no_history",
            "not_possible_now", "nothing_wished", "other_lease", "policy_changed",
            "reservation_changed", "reservation_conflict", "run_changed", "still_leasing",
            "store_not_empty", "version_conflict", "wish_not_free",
        )),
        (422, (
            "bad_array", "bad_calendar", "bad_duration", "bad_needs", "bad_nodes", "bad_trace",
            "class_not_allowed", "key_reused", "reservation_refused", "unknown_project",
        )),
        (429, ("queue_full", "too_many_waiting")),
        (500, ("store_ahead", "store_behind", "verify_failed")),
        (503, ("store_fenced", "store_in_use", "store_replaced", "store_unavailable")),
        (504, ("cell_timeout",)),
    )
    for reason in reasons
}  # fmt: skip


class GPULeaseError(Exception):
    """A refusal or failure that a person may read.

    Attributes:
        reason: machine-readable code, ``snake_case``; listed in ``policy.explanation``.
        sentence: one sentence saying what happened and why, for a person.
        next_step: what the person can do now; may be empty when there is nothing.
        numbers: the quantities behind the sentence (JSON values only).
        status: the HTTP status a service answers with; by default its reason's.
    """

    def __init__(
        self,
        reason: str,
        sentence: str,
        *,
        next_step: str = "",
        numbers: Mapping[str, Any] | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.next_step = next_step
        self.numbers: dict[str, Any] = dict(numbers or {})
        self.status = _STATUS.get(reason, 400) if status is None else status

    def __str__(self) -> str:
        return f"{self.sentence} {self.next_step}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {n: v for n, v in self.__dict__.items() if n != "_render_traceback_"}
        return copied, (type(self), self.args, attributes)

    def to_problem(self) -> dict[str, Any]:
        """Return the RFC 9457 object for this error."""
        return {
            "type": "about:blank",
            "title": self.sentence,
            "status": self.status,
            "detail": str(self),
            "reason": self.reason,
            "numbers": self.numbers,
            "next_step": self.next_step,
        }

    @classmethod
    def from_problem(cls, problem: Mapping[str, Any]) -> GPULeaseError:
        """Rebuild the error from what ``to_problem`` gave; members missing or odd are neutral."""
        numbers, status = problem.get("numbers"), problem.get("status")
        return cls(
            str(problem.get("reason", "unknown")),
            str(problem.get("title") or problem.get("detail") or "The request failed."),
            next_step=str(problem.get("next_step", "")),
            numbers=numbers if isinstance(numbers, Mapping) else {},
            status=status if isinstance(status, int) else 500,
        )
