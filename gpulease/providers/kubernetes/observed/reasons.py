"""What a lease pod's start is doing, or why it failed: from its status and events to one code.

The code comes from conditions, container statuses, events and refusals of the API server.  The
codes are those of ``policy.lifecycle`` (``STAGES``, ``START_FAILURES``), and their sentences for
people are in ``policy.reasons``; the ``detail`` here is the sentence for admins, with
the cluster's own words.  Pure: ``now`` is passed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from gpulease.providers.kubernetes.observed import hami
from gpulease.providers.kubernetes.observed.pods import granted_at
from gpulease.providers.kubernetes.pod_resources import ask


@dataclass(frozen=True)
class StartTimeouts:
    """How long (seconds) each step may take before it counts as failed."""

    bind: float = 10.0
    attach: float = 20.0
    start: float = 60.0


@dataclass(frozen=True)
class Reading:
    """One reading of a start.

    ``stage`` is what it does now, "" once it is over; ``failed`` why it failed, "" while it has
    not.  ``detail`` is for admins, ``said`` a code of ``reasons.PROGRESS`` for the lease's
    holder; ``numbers`` are JSON values.
    """

    stage: str = ""
    failed: str = ""
    detail: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""


_MOST_DETAIL: Final = 500


def words_of(event: Manifest) -> str:
    """Return what an event says."""
    return sentence_of(event.get("reason") or "", event.get("message") or event.get("note"))


def sentence_of(reason: str, message: str | None) -> str:
    """Return a reason with its message, where it has one."""
    return cut(f"{reason}: {message}" if reason and message else message or reason)


def cut(text: str) -> str:
    """Return a text in one line, at most 500 letters of it."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_DETAIL else f"{flat[: _MOST_DETAIL - 1]}…"


def first_seen(event: Manifest) -> str | None:
    """Return when something happened for the first time, as the API writes it."""
    return (
        event.get("firstTimestamp")
        or event.get("deprecatedFirstTimestamp")
        or event.get("eventTime")
        or event.get("lastTimestamp")
        or (event.get("metadata") or {}).get("creationTimestamp")
    )


def last_seen(event: Manifest) -> str | None:
    """Return when something happened for the last time, as the API writes it."""
    series = event.get("series") or {}
    return (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or first_seen(event)
    )


def when_last(event: Manifest) -> datetime:
    """Return the same as a time, to sort by."""
    return time_of(last_seen(event)) or datetime.min.replace(tzinfo=UTC)


def time_of(text: str | None) -> datetime | None:
    """Return an API time (RFC 3339 in UTC), ``None`` where there is none."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


Manifest = Mapping[str, Any]

#: Container reasons that waiting does not fix, and those of the kubelet after a failed pull.
_IMAGE_ERRORS: Final = frozenset(
    {
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "ImagePullBackOff",
    }
)
_FIRST_PULL_FAILED: Final = "ErrImagePull"  # said once; the kubelet tries again and then backs off
_CONTAINER_ERRORS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
        "StartError",
        "ContainerCannotRun",
        "CrashLoopBackOff",
    }
)
#: Reasons of a pod's whole status, once it has failed.
_POD_FAILURES: Final[Mapping[str, str]] = {
    "Evicted": "evicted",
    "Preempting": "evicted",
    "Shutdown": "evicted",
    "NodeShutdown": "evicted",
    "Terminated": "evicted",
    "NodeLost": "node_lost",
    "DeadlineExceeded": "start_timeout",
    "UnexpectedAdmissionError": "capacity_taken",
    "NodeAffinity": "unschedulable",
    "PodOSSelectorNodeLabelDoesNotMatch": "unschedulable",
}
#: Reasons of the condition DisruptionTarget.
_DISRUPTIONS: Final[Mapping[str, str]] = {
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
    "PreemptionByScheduler": "evicted",
    "EvictionByEvictionAPI": "evicted",
    "TerminationByKubelet": "evicted",
    "PreemptionByKubeScheduler": "evicted",
}
_VOLUME_EVENTS: Final = frozenset({"FailedAttachVolume", "FailedMount", "FailedMapVolume"})
_CLAIM_EVENTS: Final = frozenset({"FailedPrepareDynamicResources", "FailedResourceClaimCreation"})
_INSUFFICIENT: Final = re.compile(r"(\d+) Insufficient ([\w./-]+[\w])")
_NODES: Final = re.compile(r"^(\d+)/(\d+) nodes are available")
_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+), "
    r"used: (?P<used>.+), limited: (?P<limited>.+)$"
)
#: Words of the scheduler for "not now": what is asked for exists and is in use.
_IN_USE: Final = ("Insufficient ", "Too many pods", "cannot allocate all claims")


def read_pod(
    pod: Manifest,
    events: Iterable[Manifest] = (),
    *,
    now: datetime,
    bounds: StartTimeouts | None = None,
    workloads: Iterable[Manifest] = (),
    held_until: datetime | None = None,
) -> Reading:
    """Return what the pod's start is doing or why it failed.

    Whether the companion is connected its channel tells: this is asked only while it is not.

    Args:
        pod: as the API server gives it.
        events: events about it, of API ``v1`` or ``events.k8s.io/v1``, in any order; without them
            a pull cannot be told from other preparations, nor a volume that does not attach.
        now: the present, in UTC.
        bounds: how long each step may take.
        workloads: Kueue's in the pod's namespace, as far as they may be read.
        held_until: when a queue of the cluster's was last seen to hold it back.
    """
    seen = _Seen(
        pod,
        sorted(events, key=when_last),
        now,
        bounds or StartTimeouts(),
        tuple(workloads),
        held_until,
    )
    for step in _STEPS:
        reading = step(seen)
        if reading is not None:
            return reading
    return Reading("starting_container")


def read_refusal(status: int, reason: str, message: str) -> Reading:
    """Return why the API server did not take the pod.

    Args:
        status: HTTP's; 0 without an answer.
        reason: the API status's reason, as ``Forbidden``.
        message: the API status's message.
    """
    detail = cut(message or reason or "The API server does not answer.")
    if status == 403 and (quota := _QUOTA.search(message)) is not None:
        return Reading(failed="quota_exceeded", detail=detail, numbers=quota.groupdict())
    if status == 403 and "exceeded quota" in message:
        return Reading(failed="quota_exceeded", detail=detail)
    if status in (400, 403, 404, 413, 422):
        return Reading(failed="admission_refused", detail=detail, numbers={"status": status})
    if status == 500 and "webhook" in message:
        return Reading(failed="admission_refused", detail=detail, numbers={"status": status})
    return Reading(failed="cluster_unreachable", detail=detail, numbers={"status": status})


@dataclass(frozen=True)
class _Seen:
    """A pod with its events (oldest first), the time, and the bounds."""

    pod: Manifest
    events: Sequence[Manifest]
    now: datetime
    bounds: StartTimeouts
    workloads: tuple[Manifest, ...] = ()
    held_until: datetime | None = None

    @property
    def status(self) -> Manifest:
        found: Manifest = self.pod.get("status") or {}
        return found

    def condition(self, kind: str) -> Manifest:
        """Return a condition of the pod, empty where it has none of this kind."""
        every = self.status.get("conditions") or ()
        return next((each for each in every if each["type"] == kind), {})

    def containers(self) -> list[Manifest]:
        """Return the container statuses, those of init containers first."""
        kinds = ("initContainerStatuses", "containerStatuses")
        return [each for kind in kinds for each in self.status.get(kind) or ()]

    def since(self, text: str | None) -> float:
        """Return the seconds from an API time until now; 0 where there is none."""
        at = time_of(text)
        return max(0.0, (self.now - at).total_seconds()) if at is not None else 0.0


def _queued(seen: _Seen) -> Reading | None:
    """Read a pod that a queue of the cluster's holds back, or takes away for others."""
    taken = ask.taken_back(seen.pod)
    if taken:
        return Reading(failed="queue_preempted", detail=cut(taken))
    found = ask.waiting(seen.pod, seen.workloads)
    if found is None:
        return None
    numbers = {} if found.ahead is None else {"ahead": found.ahead}
    ahead = "" if found.ahead is None else f" {found.ahead} before it there."
    detail = cut(f"{found.detail}{ahead}")
    return Reading("cluster_queue", detail=detail, numbers=numbers, said=found.said)


def _failed_pod(seen: _Seen) -> Reading | None:
    """Read a pod that is over: its own reason first, then its containers'."""
    if seen.status.get("phase") not in ("Failed", "Succeeded", "Unknown"):
        return None
    reason, message = seen.status.get("reason") or "", seen.status.get("message") or ""
    detail = sentence_of(reason, message)
    if reason in _POD_FAILURES:
        return Reading(failed=_POD_FAILURES[reason], detail=detail)
    if reason.startswith("OutOf"):  # the kubelet found less than the scheduler thought
        return Reading(failed="capacity_taken", detail=detail)
    disrupted = _disrupted(seen)
    if disrupted is not None:
        return disrupted
    if seen.status.get("phase") == "Unknown":
        return Reading(failed="node_lost", detail=detail or "The node does not say how it is.")
    ended = _ended(seen)
    return ended or Reading(failed="supervisor_failed", detail=detail or "The pod is over.")


def _disrupted(seen: _Seen) -> Reading | None:
    """Read the mark that the cluster puts on a pod that it takes away."""
    found = seen.condition("DisruptionTarget")
    if found.get("status") != "True":
        return None
    reason = found.get("reason") or ""
    code = _DISRUPTIONS.get(reason, "evicted")
    return Reading(failed=code, detail=sentence_of(reason, found.get("message")))


def _ended(seen: _Seen) -> Reading | None:
    """Read a container that has ended."""
    for each in seen.containers():
        ended = (each.get("state") or {}).get("terminated")
        if not ended or (ended.get("exitCode") == 0 and each["name"] != "companion"):
            continue
        reason, message = ended.get("reason") or "", (ended.get("message") or "").strip()
        status = ended.get("exitCode", 0)
        numbers = {"exit_status": status}
        detail = sentence_of(f"{reason or 'Ended'}, exit status {status}", message)
        if reason == "OOMKilled":
            return Reading(failed="out_of_memory", detail=detail, numbers=numbers)
        if reason in _CONTAINER_ERRORS:
            return Reading(failed="container_error", detail=detail, numbers=numbers)
        if "No module named" in message and "gpulease" in message:
            return Reading(failed="no_gpulease", detail=detail, numbers=numbers)
        return Reading(failed="supervisor_failed", detail=detail, numbers=numbers)
    return None


def _node_lost(seen: _Seen) -> Reading | None:
    """Read a bound pod whose node stopped answering: only its readiness says so.

    The node controller takes it back without a word; a kubelet always gives its reason.
    """
    ready = seen.condition("Ready")
    silent = not ready.get("reason") and seen.condition("ContainersReady").get("status") == "True"
    named = ready.get("reason") in ("NodeLost", "NodeNotReady")
    if ready.get("status") == "False" and (named or silent):
        detail = sentence_of("The node does not answer", ready.get("message"))
        return Reading(failed="node_lost", detail=detail)
    return None


def _unbound(seen: _Seen) -> Reading | None:
    """Read a pod that is on no node yet."""
    if (seen.pod.get("spec") or {}).get("nodeName"):
        return None
    for event in reversed(seen.events):
        if event.get("reason") in _CLAIM_EVENTS:
            return Reading(failed="claim_failed", detail=words_of(event))
    scheduled = seen.condition("PodScheduled")
    message = scheduled.get("message") or ""
    numbers = _scheduling_numbers(message)
    waited = seen.since((seen.pod.get("metadata") or {}).get("creationTimestamp"))
    if seen.held_until is not None:
        waited = min(waited, (seen.now - seen.held_until).total_seconds())
    detail = cut(message)
    if waited < seen.bounds.bind:
        said = "no_room_yet" if message else ""
        return Reading("scheduling", detail=detail, numbers=numbers, said=said)
    in_use = not message or any(words in message for words in _IN_USE)
    in_use = in_use or hami.no_room(message, seen.events)
    code = "capacity_taken" if in_use else "unschedulable"
    return Reading(failed=code, detail=detail or "No node was found in time.", numbers=numbers)


def _scheduling_numbers(message: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (nodes := _NODES.search(message)) is not None:
        found["nodes"] = int(nodes[2])
    if short := {name: int(count) for count, name in _INSUFFICIENT.findall(message)}:
        found["insufficient"] = short
    return found


def _waiting(seen: _Seen) -> Reading | None:
    """Read a container that waits for a reason that will not pass by itself."""
    for each in seen.containers():
        waiting = (each.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason") or "", waiting.get("message")
        detail = sentence_of(reason, message)
        if reason in _IMAGE_ERRORS:
            return Reading(failed="image_error", detail=detail, numbers={"image": _image(each)})
        if reason == _FIRST_PULL_FAILED:
            numbers = {"image": _image(each)}
            return Reading("pulling", detail=detail, numbers=numbers, said="pulled_again")
        if reason in _CONTAINER_ERRORS:
            return Reading(failed="container_error", detail=detail)
    return None


def _volume(seen: _Seen) -> Reading | None:
    """Read a volume that would not attach or mount, once it has been tried for long enough."""
    if any((each.get("state") or {}).get("running") for each in seen.containers()):
        return None
    tried = [each for each in seen.events if each.get("reason") in _VOLUME_EVENTS]
    if not tried:
        return None
    seconds = seen.since(first_seen(tried[0]))
    numbers = {"seconds": round(seconds)}
    if seconds >= seen.bounds.attach:
        return Reading(failed="volume_failed", detail=words_of(tried[-1]), numbers=numbers)
    detail = words_of(tried[-1])
    return Reading("starting_container", detail=detail, numbers=numbers, said="files_not_there")


def _preparing(seen: _Seen) -> Reading | None:
    """Read a bound pod whose companion does not run yet: is its image being pulled?"""
    if any((each.get("state") or {}).get("running") for each in seen.containers()):
        return None
    pulls = [each for each in seen.events if each.get("reason") in ("Pulling", "Pulled")]
    if pulls and pulls[-1].get("reason") == "Pulling":
        seconds = seen.since(first_seen(pulls[-1]))
        return Reading("pulling", detail=words_of(pulls[-1]), numbers={"seconds": round(seconds)})
    bound_at = seen.condition("PodScheduled").get("lastTransitionTime")
    since = last_seen(pulls[-1]) if pulls else bound_at
    reported = [each for each in seen.events if each.get("reason") in _CLAIM_EVENTS]
    if seen.since(since) >= seen.bounds.start:
        if reported:
            return Reading(failed="claim_failed", detail=words_of(reported[-1]))
        detail = words_of(seen.events[-1]) if seen.events else "The node has not started it."
        return Reading(failed="start_timeout", detail=detail)
    if reported:
        return Reading("starting_container", detail=words_of(reported[-1]), said="claim_not_ready")
    return Reading("starting_container")


def _running(seen: _Seen) -> Reading | None:
    for each in seen.containers():
        running = (each.get("state") or {}).get("running")
        if not running or each["name"] != "companion":
            continue
        began = (running.get("startedAt"), granted_at(seen.pod))  # it may have stood ready before
        seconds = min((seen.since(each) for each in began if each), default=0.0)
        numbers = {"seconds": round(seconds)}
        if seconds >= seen.bounds.start:
            detail = "The companion runs but has not reached the service."
            return Reading(failed="start_timeout", detail=detail, numbers=numbers)
        return Reading("connecting", numbers=numbers)
    return None


#: What is asked of a pod, in this order; the first answer counts.
_STEPS: Final[tuple[Callable[[_Seen], Reading | None], ...]] = (
    _queued,
    _failed_pod,
    _disrupted,
    _node_lost,
    _unbound,
    _ended,
    _running,
    _waiting,
    _volume,
    _preparing,
)


def _image(status: Manifest) -> str:
    return str(status.get("image", ""))
