"""From the node agents' reports to samples of each lease's slots, and to slots nobody is given.

Three tables are joined: who holds which device (the kubelet's report), which pod used it (the
agent's) and which lease a pod is (ours).  The use of a pod's own processes always counts.  Use that
cannot be told apart protects nobody: such a second is of level ``cells``, where only a running cell
keeps a lease.  Pure but for what ``AgentUsage`` remembers: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpulease.gpus.base import UNMEASURED, Sample, Tenancy
from gpulease.policy import idleness, quarantine
from gpulease.policy.model import EvidenceLevel
from gpulease.protocol.agents import AgentBatch, AgentIncident, AgentSecond


def own_use(
    second: AgentSecond, uid: str, level: EvidenceLevel, beside: Collection[str] | None
) -> tuple[float | None, EvidenceLevel]:
    """Return a pod's own use in one second, and how finely it is known.

    Use by a pod that holds nothing of the device, or by the node itself, may be on behalf of a
    holder: an MPS server runs the work of all its clients.  So it is nobody's for sure.

    Args:
        second: of a device that the pod holds.
        uid: the pod.
        level: how finely the agent could tell the device's use apart.
        beside: the other pods that hold a share of it, as far as they are leases; ``None``: the
            pod holds it alone.
    """
    use = second["use"]
    if use is None or level is EvidenceLevel.CELLS:
        return use, level
    pods: Mapping[str, float] = second.get("pods", {})
    own, unplaced = pods.get(uid, 0.0), second.get("unplaced", 0.0)
    others = {pod: share for pod, share in pods.items() if pod != uid}
    known = max((share for pod, share in others.items() if pod in (beside or ())), default=0.0)
    alien = max(
        [second.get("others", 0.0)]
        + [share for pod, share in others.items() if pod not in (beside or ())]
    )
    if own > idleness.USE:
        return (own if beside is not None or alien > idleness.USE else use), EvidenceLevel.PROCESS
    if use <= idleness.USE:
        return own if beside is not None else use, level
    if beside is None:
        # What ended before it could be placed was this pod's: nobody else has the device.
        doubtful = alien > idleness.USE >= unplaced
        return use, EvidenceLevel.CELLS if doubtful else level
    told_apart = level is EvidenceLevel.PROCESS and max(unplaced, alien) <= idleness.USE
    return (own, level) if told_apart and max(known, own) > 0 else (use, EvidenceLevel.CELLS)


#: Seconds without a report of an agent after which its node's leases have a gap.
SILENT = 10.0
#: Batches that are older (seconds) tell nothing of the present: the agent was alone for a while.
STALE = 60.0
#: Batches kept for a reader that does not come.
_UNREAD = 60

#: A device of a claim: driver, pool and name in its ResourceSlice.
Claimed = tuple[str, str, str]
#: Namespace and name, by which a kubelet names a pod.
PodName = tuple[str, str]


@dataclass(frozen=True)
class LeasePod:
    """A lease's pod as the cluster shows it, and the slots it occupies."""

    uid: str
    namespace: str
    name: str
    node: str
    slots: tuple[str, ...]


@dataclass(frozen=True)
class AgentReport:
    """What one node's agent said: its newest batch, and those whose seconds are not read yet."""

    heard: datetime
    newest: AgentBatch
    unread: tuple[AgentBatch, ...] = ()


@dataclass(frozen=True)
class Faults:
    """What must not be given out, each with the sentence for an admin.

    ``slots``: those whose pod runs on a failing device.  ``nodes``: where the next pod could land
    on one, for the kubelet still offers it: nothing new may be sent there.
    """

    slots: Mapping[str, str]
    nodes: Mapping[str, str]


def hear(report: AgentReport | None, batch: AgentBatch, now: datetime) -> AgentReport:
    """Return the node's report with one more batch, which may be an old one sent late."""
    if report is None:
        return AgentReport(now, batch, (batch,))
    late = _instant(batch["at"]) < _instant(report.newest["at"])
    newest = report.newest if late else batch
    stale = now - _instant(batch["at"]) > timedelta(seconds=STALE)
    unread = report.unread if stale else (*report.unread, batch)[-_UNREAD:]
    return AgentReport(now, newest, unread)


def samples_of(
    report: AgentReport | None,
    pod: LeasePod,
    now: datetime,
    claims: Mapping[Claimed, str],
    uids: Mapping[PodName, str],
) -> list[Sample]:
    """Return what is known of a pod's slots since the last look.

    Args:
        report: what the agent of the pod's node said, ``None`` when nothing ever.
        pod: the lease's pod.
        now: the service's clock.
        claims: the device identifiers of claimed devices, from the ResourceSlices.
        uids: of all lease pods.

    Returns:
        A sample for each slot and second; a gap for each slot where there is no report; nothing
        while the next batch is awaited.
    """
    if report is None or now - report.heard > timedelta(seconds=SILENT):
        return _gaps(pod, now, "agent_silent")
    if report.newest["problem"] and not report.newest["devices"]:
        return _gaps(pod, now, "no_devices")
    found: list[Sample] = []
    for batch in report.unread:
        found += _of_batch(batch, pod, now, claims, uids)
    return found


def faults_of(
    reports: Mapping[str, AgentReport],
    pods: Iterable[LeasePod],
    now: datetime,
    claims: Mapping[Claimed, str],
) -> Faults:
    """Return the slots and nodes that failing devices put out of use."""
    slots: dict[str, str] = {}
    nodes: dict[str, str] = {}
    by_node: dict[str, list[LeasePod]] = {}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    for node, report in reports.items():
        bad = failing(report.newest, now)
        if not bad:
            continue
        holders = _holders(report.newest, claims)
        for pod in by_node.get(node, []):
            mine = [_device(each) for each in holders.get((pod.namespace, pod.name), [])]
            sick = [bad[uuid] for uuid in mine if uuid in bad]
            slots.update(dict.fromkeys(pod.slots, sick[0]) if sick else {})
        whole = {each for held in holders.values() for each in held if "::" not in each}
        takeable = bad.keys() & set(_offered(report.newest)) - whole
        if takeable:
            nodes[node] = bad[min(takeable)]
    return Faults(slots, nodes)


def failing(batch: AgentBatch, now: datetime) -> dict[str, str]:
    """Return the devices of a node that may not be given out, each with the reason."""
    bad: dict[str, str] = {}
    for device in batch["devices"]:
        found = quarantine.judge([_incident(each) for each in device["incidents"]], now)
        if not found.healthy:
            until = f", out of service until {found.until:%H:%M} UTC" if found.until else ""
            said = f"GPU {device['uuid']}: {found.sentence}{until}. {found.step}"
            bad[device["uuid"]] = said.rstrip()
    for device in batch["devices"]:
        if device["parent"] in bad:
            bad.setdefault(device["uuid"], bad[device["parent"]])
    return bad


class AgentUsage:
    """What the node agents said, as the provider keeps it between two looks."""

    def __init__(self) -> None:
        self.reports: dict[str, AgentReport] = {}

    def hear(self, node: str, batch: AgentBatch, now: datetime) -> None:
        """Take one batch of a node's agent."""
        self.reports[node] = hear(self.reports.get(node), batch, now)

    def samples(
        self, pods: Iterable[LeasePod], now: datetime, claims: Mapping[Claimed, str] | None = None
    ) -> list[Sample]:
        """Return the samples of all lease pods since the last call; call it once a second."""
        leases = list(pods)
        uids = {(pod.namespace, pod.name): pod.uid for pod in leases}
        found = [
            sample
            for pod in leases
            for sample in samples_of(self.reports.get(pod.node), pod, now, claims or {}, uids)
        ]
        self.reports = {node: replace(report, unread=()) for node, report in self.reports.items()}
        return found

    def faults(
        self, pods: Iterable[LeasePod], now: datetime, claims: Mapping[Claimed, str] | None = None
    ) -> Faults:
        """Return what failing devices put out of use."""
        return faults_of(self.reports, pods, now, claims or {})

    def warnings(self, now: datetime) -> list[str]:
        """Return what an admin should know of the devices: which are kept out of use, and why."""
        return [
            f"{node}: {sentence}"
            for node, report in sorted(self.reports.items())
            for sentence in [
                *filter(None, [report.newest["problem"]]),
                *sorted(set(failing(report.newest, now).values())),
            ]
        ]

    def limits(self) -> list[str]:
        """Return the nodes with devices whose use cannot be measured."""
        found = []
        for node, report in sorted(self.reports.items()):
            parents = {each["parent"] for each in report.newest["devices"]}
            coarse = [
                each["name"]
                for each in report.newest["devices"]
                if each["level"] == "cells" and each["uuid"] not in parents
            ]
            found += [f"{node} ({', '.join(sorted(set(coarse)))}): {UNMEASURED}"] if coarse else []
        return found

    def forget(self, nodes: Iterable[str]) -> None:
        """Keep what was said of these nodes only; the others have left the cluster."""
        kept = set(nodes)
        self.reports = {node: report for node, report in self.reports.items() if node in kept}


def _of_batch(
    batch: AgentBatch,
    pod: LeasePod,
    now: datetime,
    claims: Mapping[Claimed, str],
    uids: Mapping[PodName, str],
) -> list[Sample]:
    if batch["holders"] is None:
        return _gaps(pod, now, "kubelet_silent")
    holders = _holders(batch, claims)
    mine = holders.get((pod.namespace, pod.name), [])
    if not mine or not pod.slots:
        return _gaps(pod, now, "not_listed")
    levels = {each["uuid"]: EvidenceLevel(each["level"]) for each in batch["devices"]}
    sizes = {each["uuid"]: each["memory"] for each in batch["devices"]}
    beside: dict[str, set[str]] = {}
    for key, others in holders.items():
        for held in others if key != (pod.namespace, pod.name) else ():
            beside.setdefault(_device(held), set()).add(uids.get(key, ""))
    # Several slots on one device (replicas) all show its use; one slot on several, the rest too.
    slots: dict[str, list[str]] = {}
    for index, held in enumerate(mine):
        slots.setdefault(_device(held), []).append(pod.slots[min(index, len(pod.slots) - 1)])
    found: list[Sample] = []
    for second in batch["seconds"]:
        uuid = second["device"]
        for number, slot in enumerate(slots.get(uuid, ())):
            level = levels.get(uuid, EvidenceLevel.CELLS)
            use, level = own_use(second, pod.uid, level, beside.get(uuid))
            gap = second.get("gap") or ""
            memory = second.get("memory")
            at = _instant(second["at"])
            tenancy = None
            if uuid in beside and memory is not None and sizes.get(uuid) and "memories" in second:
                taken = second["memories"].get(pod.uid, 0)
                tenancy = Tenancy(f"{pod.node}/{uuid}", taken, sizes[uuid] - memory)
            own = tenancy.used if tenancy is not None else None if uuid in beside else memory
            # Each of several slots on one device is told its use; its memory is held once.
            own = 0 if number and own is not None else own
            found.append(Sample(slot, at, use, own, gap=gap, level=level, tenancy=tenancy))
    unknown = [slot for uuid, each in slots.items() if uuid not in levels for slot in each]
    return [*found, *(Sample(slot, now, None, gap="unknown_device") for slot in unknown)]


def _holders(batch: AgentBatch, claims: Mapping[Claimed, str]) -> dict[PodName, list[str]]:
    """Return what each pod (namespace, name) holds, replicas with their number, in order."""
    found: dict[PodName, list[str]] = {}
    for each in batch["holders"] or ():
        device = each["device"]
        if each.get("driver"):
            device = claims.get((each["driver"], each.get("pool", ""), device), device)
        held = found.setdefault((each["namespace"], each["pod"]), [])
        if device not in held:
            held.append(device)
    return {pod: sorted(held) for pod, held in found.items()}


def _device(held: str) -> str:
    """Return the device of a replica: ``GPU-x::3`` is a share of ``GPU-x``."""
    return held.partition("::")[0]


def _offered(batch: AgentBatch) -> list[str]:
    """Return the devices that the kubelet gives out; a GPU with MIG devices is none itself."""
    parents = {each["parent"] for each in batch["devices"]}
    return [
        each["uuid"] for each in batch["devices"] if each["offered"] and each["uuid"] not in parents
    ]


def _incident(found: AgentIncident) -> quarantine.Incident:
    until = found["until"]
    return quarantine.Incident(
        found["kind"],
        _instant(found["at"]),
        _instant(until) if until else None,
        found.get("xid"),
    )


def _gaps(pod: LeasePod, now: datetime, why: str) -> list[Sample]:
    return [Sample(slot, now, None, gap=why) for slot in pod.slots]


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
