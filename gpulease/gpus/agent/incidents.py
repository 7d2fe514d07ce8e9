"""What went wrong on each device in the last day, as it is told to the service.

Owns the list of faults: one that lasts is one entry, a burst of reports is one entry, a program's
own faults are none.  Refuses to judge: ``policy.evidence.quarantine`` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpulease.policy.quarantine import BURST, MEMORY, Incident
from gpulease.protocol.agents import AgentIncident

#: Faults kept of one device; the oldest are given up first.
_MOST = 32


@dataclass(frozen=True)
class Fault:
    """An incident and its device."""

    device: str
    incident: Incident


class Incidents:
    """The faults of this node's devices.

    Args:
        kept: what an earlier run of the agent wrote down.
    """

    def __init__(self, kept: Iterable[Fault] = ()) -> None:
        self._faults = list(kept)
        #: Whether anything changed since ``all`` was asked last.
        self.changed = False

    def happened(self, device: str, kind: str, now: datetime, xid: int | None = None) -> None:
        """Note a fault that is over as soon as it is reported."""
        incident = Incident(kind, now, now, xid)
        if not incident.counts:
            return
        for index, fault in enumerate(self._faults):
            old = fault.incident
            same = fault.device == device and (old.kind, old.xid) == (kind, xid)
            if same and old.until and now - old.until <= timedelta(seconds=BURST):
                self._put(index, replace(old, until=now))
                return
        self._add(device, incident)

    def lasts(self, device: str, kind: str, now: datetime, *, present: bool) -> bool:
        """Note whether a condition stands now; return whether that is new."""
        for index, fault in enumerate(self._faults):
            open_now = fault.incident.until is None
            if open_now and (fault.device, fault.incident.kind) == (device, kind):
                if not present:
                    self._put(index, replace(fault.incident, until=now))
                return not present
        if present:
            self._add(device, Incident(kind, now))
        return present

    def of(self, device: str) -> list[AgentIncident]:
        """Return the faults of a device, as they are posted."""
        found: list[AgentIncident] = []
        for fault in self._faults:
            if fault.device == device:
                told: AgentIncident = {
                    "kind": fault.incident.kind,
                    "at": fault.incident.at.isoformat(),
                    "until": fault.incident.until.isoformat() if fault.incident.until else None,
                }
                if fault.incident.xid is not None:
                    told["xid"] = fault.incident.xid
                found.append(told)
        return found

    def all(self, now: datetime) -> list[Fault]:
        """Return every fault that still matters, and forget the others."""
        oldest = now - timedelta(seconds=MEMORY)
        self._faults = [
            each
            for each in self._faults
            if each.incident.until is None or each.incident.until > oldest
        ]
        self.changed = False
        return list(self._faults)

    def _put(self, index: int, incident: Incident) -> None:
        self._faults[index] = replace(self._faults[index], incident=incident)
        self.changed = True

    def _add(self, device: str, incident: Incident) -> None:
        self._faults.append(Fault(device, incident))
        mine = [each for each in self._faults if each.device == device]
        if len(mine) > _MOST:
            over = [each for each in mine if each.incident.until is not None] or mine
            self._faults.remove(over[0])
        self.changed = True
