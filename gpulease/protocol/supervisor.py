"""The supervisor channel, ``api/leases/{id}/supervisor``: what the service says on it.

What a supervisor says is ``reports.FromSupervisor``.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic takes no other one before Python 3.12


class NodeAddress(TypedDict):
    """Where the supervisor of a further node of a lease hears what is to be launched."""

    address: str  # tcp://host:port
    public_key: str  # Z85


class ToSupervisor(TypedDict, total=False):
    """One message to a supervisor; the members that each type carries:

    * ``lease``: hard_end ("" while it has none): the first word of each connection, and after each
      change; nothing else moves the end that the supervisor keeps when the service is silent
    * ``admit``, ``revoke``: client_key (Z85), kernel_id
    * ``warn``: until, reason, sentence;  ``clear``: the warning is over
    * ``drain``: until, reason, park (bool: park what cannot go home, then end),
      interrupt_grace (seconds until a cell that runs on is killed)
    * ``resume``: the drain is called off;  ``end``: reason
    * ``nodes``: nodes; all further ones of the lease are there, by rank
    """

    type: Literal["lease", "admit", "revoke", "warn", "clear", "drain", "resume", "end", "nodes"]
    hard_end: str
    client_key: str
    kernel_id: str
    until: str
    reason: str
    sentence: str
    park: bool
    interrupt_grace: float
    nodes: list[NodeAddress]
