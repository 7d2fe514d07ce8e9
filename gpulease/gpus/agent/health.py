"""How healthy each GPU is: the driver's events, its counters, and the faults of the last day.

Which events are asked for, and what each reading means as a kind of incident.  A fault that lasts
is one entry, a burst of reports is one entry, a program's own faults are none.  What follows from
them is ``policy.quarantine``'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any, Final

from gpulease.gpus import driver
from gpulease.gpus.driver import Library, RefusedError, ask, optional
from gpulease.gpus.reading import GPUS_MAX, DeviceReading, Seen
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


log = logging.getLogger(__name__)

_XID: Final = 0x8
#: Numbers above these are garbage: of an Xid, and of memory errors since the driver was loaded.
_XID_MAX: Final = 9999
_ECC_MAX: Final = 2**31
#: NVML's event type -> kind of incident.
EVENTS: Final[Mapping[int, str]] = {
    0x2: "double_bit_ecc",
    _XID: "xid",
    0x800: "retirement_failure",
    0x2000: "fatal_poison",
    0x4000: "gpu_unavailable",
    0x8000: "recovery_action",
}
#: A gap of these names is a fault for as long as it stands.
_GAPS: Final = {
    "gpu_is_lost": "gpu_lost",
    "gpu_not_found": "gpu_lost",
    "reset_required": "reset_required",
}
_WAIT_MILLISECONDS = 2000
#: Seconds until the next try: without a driver, and after it refused.
_SOON_SECONDS, _AGAIN_SECONDS = 0.5, 5.0


@dataclass(frozen=True)
class Event:
    """What the driver called out.  ``device`` is "" when it is none that is known: then all."""

    device: str
    kind: str
    at: datetime
    xid: int | None = None


class Listener(threading.Thread):
    """Waits for the driver's events in a thread of its own, for the call blocks.

    Args:
        library: the driver library; others initialise it.
    """

    def __init__(self, library: Library) -> None:
        super().__init__(name="gpu-events", daemon=True)
        self._library = library
        self._ended = threading.Event()
        self.events: SimpleQueue[Event] = SimpleQueue()
        #: Set while the driver's events are listened to.
        self.listening = threading.Event()

    def run(self) -> None:
        """Listen until ``end``, again after the driver was away."""
        while not self._ended.is_set():
            nvml, generation = self._library.present, self._library.generation
            if nvml is None:
                self._ended.wait(_SOON_SECONDS)
                continue
            try:
                self._listen(nvml, generation)
            except RefusedError as error:
                log.info("no events of the GPUs: %s", error)
                self._ended.wait(_AGAIN_SECONDS)

    def end(self) -> None:
        """Stop listening; returns at once."""
        self._ended.set()

    def _listen(self, nvml: Any, generation: int) -> None:
        events = ask(nvml, "nvmlEventSetCreate")
        try:
            uuids = self._register(nvml, events)
            self.listening.set()
            while not self._ended.is_set() and self._is_open(generation):
                try:
                    found = ask(nvml, "nvmlEventSetWait_v2", events, _WAIT_MILLISECONDS)
                except RefusedError as error:
                    if error.reason != "timeout":
                        raise
                    continue
                self._heard(nvml, found, uuids)
        finally:
            self.listening.clear()
            if self._is_open(generation):  # else the set went with the library
                optional(nvml, "nvmlEventSetFree", events)

    def _is_open(self, generation: int) -> bool:
        return self._library.present is not None and generation == self._library.generation

    def _register(self, nvml: Any, events: Any) -> set[str]:
        uuids = set()
        for index in range(min(ask(nvml, "nvmlDeviceGetCount"), GPUS_MAX)):
            try:
                handle = ask(nvml, "nvmlDeviceGetHandleByIndex", index)
                wanted = ask(nvml, "nvmlDeviceGetSupportedEventTypes", handle) & sum(EVENTS)
                ask(nvml, "nvmlDeviceRegisterEvents", handle, wanted, events)
                uuids.add(driver.text_of(ask(nvml, "nvmlDeviceGetUUID", handle)))
            except RefusedError as error:
                log.info("GPU %d gives no events: %s", index, error)
        return uuids

    def _heard(self, nvml: Any, found: Any, known: set[str]) -> None:
        # A device that is gone cannot say who it was.
        uuid = driver.text_of(optional(nvml, "nvmlDeviceGetUUID", found.device) or "")
        kind = EVENTS.get(int(found.eventType))
        if kind is not None:
            xid = int(found.eventData) if kind == "xid" else None
            if xid is not None and not 0 < xid <= _XID_MAX:
                log.warning("the driver reported Xid %d, which is none", xid)
                return
            device = uuid if uuid in known else ""
            self.events.put(Event(device, kind, datetime.now(UTC), xid))


@dataclass
class Health:
    """Turns events, gaps and counters into incidents.

    Args:
        incidents: where they are noted.
    """

    incidents: Incidents
    _double_bits: dict[str, int] = field(default_factory=dict)

    def heard(self, event: Event, seen: Mapping[str, Seen]) -> bool:
        """Note an event; return whether it speaks against a device."""
        cards = [each.info.uuid for each in seen.values() if not each.parent]
        for uuid in [event.device] if event.device else cards:
            self.incidents.happened(uuid, event.kind, event.at, event.xid)
        log.warning("%s: %s %s", event.device or "all GPUs", event.kind, event.xid or "")
        return self.incidents.changed

    def saw(self, reading: DeviceReading) -> bool:
        """Note what one second says; return whether a fault began or ended with it."""
        if reading.gap and reading.gap not in _GAPS:
            return False  # nothing is known of the device: what stood stands
        changes = [
            self.incidents.lasts(
                reading.uuid, kind, reading.at, present=_GAPS.get(reading.gap) == kind
            )
            for kind in sorted(set(_GAPS.values()))
        ]
        return any(changes)

    def check(self, nvml: Any, seen: Mapping[str, Seen], now: datetime) -> None:
        """Read the counters of each GPU; called every few seconds."""
        for each in seen.values():
            if not each.parent:
                self._check_rows(nvml, each, now)
                self._check_memory(nvml, each, now)

    def _check_rows(self, nvml: Any, seen: Seen, now: datetime) -> None:
        found = optional(nvml, "nvmlDeviceGetRemappedRows", seen.handle)
        # Before Ampere, or divided, there is no word; what is neither yes nor no is none either.
        if found is not None and found[3] in (0, 1):
            failed = found[3] == 1
            self.incidents.lasts(seen.info.uuid, "remap_failure", now, present=failed)

    def _check_memory(self, nvml: Any, seen: Seen, now: datetime) -> None:
        kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        count = optional(nvml, "nvmlDeviceGetTotalEccErrors", seen.handle, *kinds)
        if count is None or not 0 <= count <= _ECC_MAX:
            return
        # What was there before the agent came was somebody's to look at then.
        if count > self._double_bits.setdefault(seen.info.uuid, count):
            self.incidents.happened(seen.info.uuid, "double_bit_ecc", now)
        self._double_bits[seen.info.uuid] = count
