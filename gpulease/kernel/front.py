"""The comm ``gpulease``: what a front end knows of this notebook.

A comm that opens receives a snapshot of the notebook's state (which cells, phase, variables), then
deltas with growing version numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpulease.kernel.clock import read_in

if TYPE_CHECKING:
    from gpulease.kernel.session import Session

#: Version of the messages; a front end that knows another major number shows nothing.
FRONT_PROTOCOL = "1.0"


class Front:
    """All open comms of one kernel."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._comms: dict[str, Any] = {}
        self._version = 0
        self._sent = self._state()
        session.on_change = self.changed

    def opened(self, comm: Any, message: Any) -> None:  # noqa: ARG002
        """A front end opened the comm: it gets everything."""
        self._comms[comm.comm_id] = comm
        self._sent = self._state()
        comm.on_msg(lambda message: self._asked(comm, message["content"].get("data") or {}))
        comm.on_close(lambda message: self._comms.pop(message["content"]["comm_id"], None))
        comm.send({**self._header("snapshot"), "state": self._sent})

    def changed(self) -> None:
        """Send what differs from what was sent last; nothing when nothing does."""
        if not self._comms:
            return
        state = self._state()
        delta = {key: value for key, value in state.items() if self._sent.get(key) != value}
        if not delta:
            return
        self._sent = state
        self._version += 1
        for comm in list(self._comms.values()):
            comm.send({**self._header("delta"), "state": delta})

    def close(self) -> None:
        """Close every comm."""
        for comm in self._comms.values():
            comm.close()
        self._comms.clear()

    def _asked(self, comm: Any, data: dict[str, Any]) -> None:
        if data.get("type") == "snapshot":
            comm.send({**self._header("snapshot"), "state": self._sent})
        elif data.get("type") == "cells" and data.get("which") in ("auto", "all", "none"):
            self._session.turn(data["which"])
        elif data.get("type") == "kept" and isinstance(data.get("config"), dict):
            self._session.take_kept(data["config"])
        elif data.get("type") == "clock" and isinstance(data.get("zone"), str):
            read_in(data["zone"], twelve_hours=data.get("twelve_hours") is True)
        else:
            comm.send({**self._header("problem"), "reason": "bad_message"})

    def _header(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "protocol": FRONT_PROTOCOL, "version": self._version}

    def _state(self) -> dict[str, Any]:
        session = self._session
        lease = session.link.mine()
        variables: dict[str, Any] = {}
        if session.connected_once:
            variables = {
                row.name: {
                    "type": row.type_name,
                    "place": row.place.value,
                    "size": row.size,
                    "verified": row.verified,
                    "blocker": row.blocker,
                    "shared_with": row.shared_with,
                }
                for row in session.home.status()
            }
        return {
            "cells": session.which,
            "kept": session.kept(),
            "phase": session.link.phase.value,
            "lease_id": lease["id"] if lease else None,
            "variables": variables,
            "files": session.files.lines() if session.connected_once else [],
            "last_cell": session.cells.cost,
        }
