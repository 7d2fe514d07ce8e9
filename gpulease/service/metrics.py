"""What Prometheus reads at ``/metrics``.

Labels are classes, states and reason codes, never a user, a server or a lease: those would make a
series of each person and each click.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gpulease.policy.model import EndReason, Lease, LeaseState, Verdict

_WAITS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600)
_SHORT = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120)
_LIVE = tuple(state for state in LeaseState if state is not LeaseState.ENDED)

#: Gauges, counters and histograms: name (after ``gpulease_``), words, labels.
_GAUGES = (
    ("queue_length", "Requests that wait for a GPU.", "gpu_class pool"),
    ("leases", "Leases by state.", "gpu_class state"),
    (
        "devices",
        "Devices by use: free, used, quarantined, or lost (their node does not answer).",
        "pool use",
    ),
    (
        "longest_silence_seconds",
        "For how long the most silent lease has had no evidence of use.",
        "gpu_class",
    ),
    ("longest_overdue_seconds", "By how much the latest reclaim is past its bound.", "gpu_class"),
    ("alerts", "Alerts that stand now, by reason.", "reason"),
)
_COUNTERS = (
    ("capacity_taken_total", "Devices that others took after they had been granted.", "pool"),
    ("ended_total", "Leases ended, by reason.", "gpu_class reason"),
    ("parked_total", "Leases that ended with values parked, not in the notebook.", "gpu_class"),
    (
        "reclaimed_idle_gpu_seconds_total",
        "GPU seconds that idle leases gave back before their hard end.",
        "gpu_class",
    ),
    (
        "warm_gpu_seconds_total",
        "GPU seconds that pods which stood ready held for nobody.",
        "gpu_class",
    ),
    ("errors_total", "Refusals and failures by reason code.", "reason"),
    ("verdict_changes_total", "Changes of verdict.", "verdict"),
    (
        "cluster_requests_total",
        "Requests to the Kubernetes API; code 0 is no answer.",
        "verb resource code",
    ),
)
_HISTOGRAMS = (
    ("waiting_seconds", "From the ask to the start of the lease.", "gpu_class"),
    ("attach_seconds", "From the start of the lease to active.", "gpu_class"),
    ("drain_seconds", "From the start of the drain to the end of the lease.", "gpu_class"),
    ("plan_seconds", "One round of the reconcile loop.", ""),
    (
        "cluster_request_seconds",
        "Requests to the Kubernetes API; of a watch only its opening.",
        "verb",
    ),
)


class Metrics:
    """The service's figures, in a registry of their own so that several may live in a process."""

    #: The labels of each metric, by its full name.
    labels: Final = {
        f"gpulease_{name}": tuple(labels.split())
        for name, _, labels in (*_GAUGES, *_COUNTERS, *_HISTOGRAMS)
    }

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges = {each[0]: Gauge(*self._of(each), registry=self.registry) for each in _GAUGES}
        self._counters = {
            each[0]: Counter(*self._of(each), registry=self.registry) for each in _COUNTERS
        }
        self._histograms = {
            each[0]: Histogram(
                *self._of(each),
                registry=self.registry,
                buckets=_WAITS if each[0] == "waiting_seconds" else _SHORT,
            )
            for each in _HISTOGRAMS
        }

    @classmethod
    def _of(cls, row: tuple[str, str, str]) -> tuple[str, str, tuple[str, ...]]:
        full = f"gpulease_{row[0]}"
        return full, row[1], cls.labels[full]

    def called(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count one request to the Kubernetes API."""
        self._counters["cluster_requests_total"].labels(verb, resource, str(code)).inc()
        self._histograms["cluster_request_seconds"].labels(verb).observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a refusal or failure."""
        self._counters["errors_total"].labels(reason).inc()

    def planned(self, seconds: float) -> None:
        """Time one round of the loop."""
        self._histograms["plan_seconds"].observe(seconds)

    def judged(self, verdict: Verdict) -> None:
        """Count a change of verdict."""
        self._counters["verdict_changes_total"].labels(verdict.value).inc()

    def moved(self, before: Lease, after: Lease, now: datetime) -> None:
        """Count one stored transition of a lease."""
        name = after.gpu_class
        if after.state is LeaseState.STARTING and before.state is LeaseState.QUEUED:
            self._histograms["waiting_seconds"].labels(name).observe(_seconds(before.created, now))
        if after.state is LeaseState.ACTIVE and before.state is LeaseState.STARTING:
            self._histograms["attach_seconds"].labels(name).observe(
                _seconds(before.state_since, now)
            )
        if after.state is LeaseState.ENDED and before.state is not LeaseState.ENDED:
            self._over(before, after, now)

    def show(self, leases: Iterable[Lease], classes: Mapping[str, str]) -> None:
        """Set the gauges of leases and queues; ``classes`` are those on offer, with their pools."""
        found = Count((lease.gpu_class, lease.state) for lease in leases)
        self._gauges["queue_length"].clear()  # a class may have another pool now
        for name in {*classes, *(name for name, _ in found)}:
            self._gauges["queue_length"].labels(name, classes.get(name, "")).set(
                found[name, LeaseState.QUEUED]
            )
            for state in _LIVE:
                self._gauges["leases"].labels(name, state.value).set(found[name, state])

    def show_devices(self, uses: Iterable[tuple[str, str]]) -> None:
        """Set the gauge of devices; each item is a pool and a use."""
        self._gauges["devices"].clear()
        for (pool, use), count in Count(uses).items():
            self._gauges["devices"].labels(pool, use).set(count)
            self._counters["capacity_taken_total"].labels(
                pool
            )  # counts from 0, so that the first one is an increase

    def show_standing(
        self, silences: Mapping[str, float], overdue: Mapping[str, float], alerts: Iterable[str]
    ) -> None:
        """Set the gauges of what should not stand for long; ``alerts`` are reasons."""
        for gauge, found in (
            (self._gauges["longest_silence_seconds"], silences),
            (self._gauges["longest_overdue_seconds"], overdue),
        ):
            gauge.clear()
            for name, seconds in found.items():
                gauge.labels(name).set(max(0.0, seconds))
        self._gauges["alerts"].clear()
        for reason, count in Count(alerts).items():
            self._gauges["alerts"].labels(reason).set(count)

    def stood_ready(self, gpu_class: str, seconds: float) -> None:
        """Count time that pods which stood ready held GPUs."""
        self._counters["warm_gpu_seconds_total"].labels(gpu_class).inc(seconds)

    def taken(self, pool: str) -> None:
        """Count a device that others took after it had been granted."""
        self._counters["capacity_taken_total"].labels(pool).inc()

    def text(self) -> bytes:
        """Return Prometheus's text format."""
        return generate_latest(self.registry)

    def _over(self, before: Lease, after: Lease, now: datetime) -> None:
        reason = after.end_reason.value if after.end_reason else "unknown"
        self._counters["ended_total"].labels(after.gpu_class, reason).inc()
        self._counters["parked_total"].labels(after.gpu_class).inc(
            1 if after.parked else 0
        )  # counts from 0
        if before.state is LeaseState.DRAINING:
            self._histograms["drain_seconds"].labels(after.gpu_class).observe(
                _seconds(before.state_since, now)
            )
        if after.end_reason is EndReason.IDLE and after.hard_end is not None:
            left = max(0.0, _seconds(now, after.hard_end))
            self._counters["reclaimed_idle_gpu_seconds_total"].labels(after.gpu_class).inc(
                left * after.cards
            )


def _seconds(since: datetime | None, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds()) if since else 0.0
