"""What Prometheus reads at ``/metrics``.

Labels are classes, states and reason codes, never a user, a server or a lease: those would make a
series of each person and each click.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gpulease.policy.model import EndReason, Lease, LeaseState, Verdict

_WAITS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600)
_SHORT = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120)
_LIVE = tuple(state for state in LeaseState if state is not LeaseState.ENDED)

M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """The service's figures, in a registry of their own so that several may live in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.labels: dict[str, tuple[str, ...]] = {}  # of each metric, by its name
        made = self._made
        self._queue = made(Gauge, "queue_length", "Requests that wait for a GPU.", "gpu_class pool")
        self._leases = made(Gauge, "leases", "Leases by state.", "gpu_class state")
        self._devices = made(
            Gauge,
            "devices",
            "Devices by use: free, used, quarantined, or lost (their node does not answer).",
            "pool use",
        )
        self._silence = made(
            Gauge,
            "longest_silence_seconds",
            "For how long the most silent lease has had no evidence of use.",
            "gpu_class",
        )
        self._overdue = made(
            Gauge,
            "longest_overdue_seconds",
            "By how much the latest reclaim is past its bound.",
            "gpu_class",
        )
        self._alerts = made(Gauge, "alerts", "Alerts that stand now, by reason.", "reason")
        self._contended = made(
            Counter,
            "capacity_taken_total",
            "Devices that others took after they had been granted.",
            "pool",
        )
        self._waiting = made(
            Histogram,
            "waiting_seconds",
            "From the ask to the start of the lease.",
            "gpu_class",
            buckets=_WAITS,
        )
        self._attach = made(
            Histogram, "attach_seconds", "From the start of the lease to active.", "gpu_class"
        )
        self._drain = made(
            Histogram,
            "drain_seconds",
            "From the start of the drain to the end of the lease.",
            "gpu_class",
        )
        self._ended = made(Counter, "ended_total", "Leases ended, by reason.", "gpu_class reason")
        self._parked = made(
            Counter,
            "parked_total",
            "Leases that ended with values parked, not in the notebook.",
            "gpu_class",
        )
        self._reclaimed = made(
            Counter,
            "reclaimed_idle_gpu_seconds_total",
            "GPU seconds that idle leases gave back before their hard end.",
            "gpu_class",
        )
        self._ready = made(
            Counter,
            "warm_gpu_seconds_total",
            "GPU seconds that pods which stood ready held for nobody.",
            "gpu_class",
        )
        self._errors = made(
            Counter, "errors_total", "Refusals and failures by reason code.", "reason"
        )
        self._verdicts = made(Counter, "verdict_changes_total", "Changes of verdict.", "verdict")
        self._plan = made(Histogram, "plan_seconds", "One round of the reconcile loop.", "")
        self._calls = made(
            Counter,
            "cluster_requests_total",
            "Requests to the Kubernetes API; code 0 is no answer.",
            "verb resource code",
        )
        self._call = made(
            Histogram,
            "cluster_request_seconds",
            "Requests to the Kubernetes API; of a watch only its opening.",
            "verb",
        )

    def _made(
        self, kind: type[M], name: str, words: str, labels: str, buckets: Sequence[float] = _SHORT
    ) -> M:
        full = f"gpulease_{name}"
        self.labels[full] = tuple(labels.split())
        more: dict[str, Any] = {"buckets": buckets} if issubclass(kind, Histogram) else {}
        return kind(full, words, self.labels[full], registry=self.registry, **more)

    def called(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count one request to the Kubernetes API."""
        self._calls.labels(verb, resource, str(code)).inc()
        self._call.labels(verb).observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a refusal or failure."""
        self._errors.labels(reason).inc()

    def planned(self, seconds: float) -> None:
        """Time one round of the loop."""
        self._plan.observe(seconds)

    def judged(self, verdict: Verdict) -> None:
        """Count a change of verdict."""
        self._verdicts.labels(verdict.value).inc()

    def moved(self, before: Lease, after: Lease, now: datetime) -> None:
        """Count one stored transition of a lease."""
        name = after.gpu_class
        if after.state is LeaseState.STARTING and before.state is LeaseState.QUEUED:
            self._waiting.labels(name).observe(_seconds(before.created, now))
        if after.state is LeaseState.ACTIVE and before.state is LeaseState.STARTING:
            self._attach.labels(name).observe(_seconds(before.state_since, now))
        if after.state is LeaseState.ENDED and before.state is not LeaseState.ENDED:
            self._over(before, after, now)

    def show(self, leases: Iterable[Lease], classes: Mapping[str, str]) -> None:
        """Set the gauges of leases and queues; ``classes`` are those on offer, with their pools."""
        found = Count((lease.gpu_class, lease.state) for lease in leases)
        self._queue.clear()  # a class may have another pool now
        for name in {*classes, *(name for name, _ in found)}:
            self._queue.labels(name, classes.get(name, "")).set(found[name, LeaseState.QUEUED])
            for state in _LIVE:
                self._leases.labels(name, state.value).set(found[name, state])

    def show_devices(self, uses: Iterable[tuple[str, str]]) -> None:
        """Set the gauge of devices; each item is a pool and a use."""
        self._devices.clear()
        for (pool, use), count in Count(uses).items():
            self._devices.labels(pool, use).set(count)
            self._contended.labels(pool)  # counts from 0, so that the first one is an increase

    def show_standing(
        self, silences: Mapping[str, float], overdue: Mapping[str, float], alerts: Iterable[str]
    ) -> None:
        """Set the gauges of what should not stand for long; ``alerts`` are reasons."""
        for gauge, found in ((self._silence, silences), (self._overdue, overdue)):
            gauge.clear()
            for name, seconds in found.items():
                gauge.labels(name).set(max(0.0, seconds))
        self._alerts.clear()
        for reason, count in Count(alerts).items():
            self._alerts.labels(reason).set(count)

    def stood_ready(self, gpu_class: str, seconds: float) -> None:
        """Count time that pods which stood ready held GPUs."""
        self._ready.labels(gpu_class).inc(seconds)

    def taken(self, pool: str) -> None:
        """Count a device that others took after it had been granted."""
        self._contended.labels(pool).inc()

    def text(self) -> bytes:
        """Return Prometheus's text format."""
        return generate_latest(self.registry)

    def _over(self, before: Lease, after: Lease, now: datetime) -> None:
        reason = after.end_reason.value if after.end_reason else "unknown"
        self._ended.labels(after.gpu_class, reason).inc()
        self._parked.labels(after.gpu_class).inc(1 if after.parked else 0)  # counts from 0
        if before.state is LeaseState.DRAINING:
            self._drain.labels(after.gpu_class).observe(_seconds(before.state_since, now))
        if after.end_reason is EndReason.IDLE and after.hard_end is not None:
            left = max(0.0, _seconds(now, after.hard_end))
            self._reclaimed.labels(after.gpu_class).inc(left * after.cards)


def _seconds(since: datetime | None, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds()) if since else 0.0
