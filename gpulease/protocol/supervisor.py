"""The supervisor channel: ``api/leases/{id}/supervisor``, lease supervisor to service."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12

from gpulease.protocol.service import Blocker

#: Supervisor channel.  From the supervisor: hello, activity, drained, admitted, bye.
#: From the service: lease, admit, revoke, warn, clear, drain, resume, end.
SupervisorMessageType = Literal[
    "hello", "activity", "drained", "admitted", "bye",
    "lease", "admit", "revoke", "warn", "clear", "drain", "resume", "end",
]  # fmt: skip


class SupervisorMessage(TypedDict, total=False):
    """One message of the supervisor channel; the members that each type carries:

    * ``hello``: address, public_key (Z85), protocol, pid, attempt, keys (those admitted), and the
      members of ``service.Environment``
    * ``activity``: samples (list of ``reports.Activity``)
    * ``drained``: result (``done`` | ``blocked`` | ``parked``), blockers, parked, reason
    * ``bye``: reason (``parent_gone``, ``ended``, ``failed``), detail, blockers, parked
    * ``lease``: hard_end ("" while it has none): the first word of each connection, and after each
      change; nothing else moves the end that the supervisor keeps when the service is silent
    * ``admit``, ``revoke``: client_key (Z85), kernel_id
    * ``admitted``: client_key; the answer to ``admit``
    * ``warn``: until, reason, sentence;  ``clear``: the warning is over
    * ``drain``: until, reason, park (bool: park what cannot go home, then end),
      interrupt_grace (seconds until a cell that runs on is killed)
    * ``resume``: the drain is called off;  ``end``: reason
    """

    type: SupervisorMessageType
    address: str
    public_key: str
    protocol: str
    python: str
    executable: str
    packages: dict[str, str]
    pid: int
    attempt: int
    samples: list[Any]  # of ``reports.Activity``
    result: str
    blockers: list[Blocker]
    parked: int  # how many values were parked
    keys: dict[str, str]  # client key -> kernel id
    reason: str
    detail: str
    sentence: str
    client_key: str
    kernel_id: str
    until: str
    hard_end: str
    park: bool
    interrupt_grace: float
