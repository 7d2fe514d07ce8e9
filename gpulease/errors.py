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
        (401, ("not_logged_in",)),
        (403, (
            "bad_name", "cross_site", "forbidden", "may_not_reserve", "may_not_tell", "no_access",
            "not_your_group", "not_your_hub", "not_your_page", "not_yours", "xsrf_failed",
        )),
        (404, (
            "no_lease", "no_notebook", "no_such_command", "no_such_lease", "no_such_reservation",
            "no_such_run", "no_such_server", "no_such_version", "not_found", "unknown_node",
            "unknown_person",
        )),
        (409, (
            "cell_running", "connected", "device_taken", "draining", "frames_stay",
            "gpulease_missing", "holds_nothing", "install_away_failed", "keep_not_possible",
            "keep_used_up", "last_error_elsewhere", "mirror_unwritable", "name_taken",
            "no_companion", "no_history", "not_active", "not_home", "not_mirrored", "not_on_gpu",
            "not_possible_now", "nothing_wished", "other_class", "other_lease", "policy_changed",
            "policy_pinned", "protocol_mismatch", "python_mismatch", "reservation_changed",
            "reservation_conflict", "result_at_home", "result_gone", "run_changed",
            "runs_not_set_up", "still_leasing", "store_not_empty", "version_conflict",
            "version_mismatch", "which_server", "wish_not_free",
        )),
        (410, ("companion_died", "lease_ended")),
        (413, ("body_too_large", "too_large")),
        (415, ("not_json",)),
        (422, (
            "bad_array", "bad_calendar", "bad_duration", "bad_needs", "bad_nodes", "bad_trace",
            "class_not_allowed", "invalid_body", "invalid_key", "key_reused", "reservation_refused",
            "unknown_project", "whatif_too_long",
        )),
        (426, ("upgrade_required", "wrong_protocol")),
        (429, (
            "queue_full", "too_many_channels", "too_many_requests", "too_many_runs",
            "too_many_waiting", "whatif_busy",
        )),
        (500, (
            "bad_key_file", "check_failed", "demo_failed", "events_lost", "file_open_to_others",
            "mirror_failed", "server_failed", "store_ahead", "store_behind", "verify_failed",
        )),
        (502, ("hub_unreachable",)),
        (503, (
            "cannot_prove", "capacity_unknown", "companion_unreachable", "connection_lost",
            "no_hub", "no_ports", "node_lost", "server_link_down", "service_unreachable",
            "starting", "store_fenced", "store_in_use", "store_replaced", "store_unavailable",
        )),
        (504, ("cell_timeout", "companion_silent", "lease_unreachable", "mirror_silent")),
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
