"""What makes each alert fire, and what does not: series as ``promtool test rules`` reads them.

A case is the series (one value a minute), the minute that is looked at, and the labels that the
alert then has; ``None`` where it must be silent.
"""

from dataclasses import dataclass
from typing import Any

PLAN = "gpulease_plan_seconds"
QUEUE = 'gpulease_queue_length{gpu_class="t4", pool="cards"}'
FREE = 'gpulease_devices{pool="cards", use="free"}'
OTHER = 'gpulease_devices{pool="slices", use="free"}'
UP = 'up{namespace="gpulease-system", job="gpulease"}'
DAEMONS = (
    "kube_daemonset_status_number_unavailable"
    '{namespace="gpulease-system", daemonset="gpulease-agent"}'
)


@dataclass(frozen=True)
class Case:
    """One look at one alert."""

    alert: str
    series: dict[str, str]
    minute: int
    labels: dict[str, str] | None


def devices(use: str, count: int) -> dict[str, str]:
    """Ten devices of a pool, some of them in this use."""
    return {
        f'gpulease_devices{{pool="cards", use="{use}"}}': f"{count}x20",
        'gpulease_devices{pool="cards", use="used"}': f"{10 - count}x20",
    }


def _pair(
    alert: str, fires: dict[str, str], silent: dict[str, str], minute: int, **labels: str
) -> list[Case]:
    return [Case(alert, fires, minute, labels), Case(alert, silent, minute, None)]


def _gauge(name: str, alert: str, high: str, low: str, **labels: str) -> list[Case]:
    inside = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    series = f"{name}{{{inside}}}"
    return _pair(alert, {series: f"{high}x20"}, {series: f"{low}x20"}, 10, **labels)


def _buckets(slow: bool) -> dict[str, str]:
    quick = "0+0x20" if slow else "0+60x20"
    return {
        f'{PLAN}_bucket{{le="10"}}': quick,
        f'{PLAN}_bucket{{le="30"}}': "0+60x20",
        f'{PLAN}_bucket{{le="+Inf"}}': "0+60x20",
    }


def _counter(name: str, alert: str, minute: int, shown: str = "", **labels: str) -> list[Case]:
    inside = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    kept = {key: value for key, value in labels.items() if key in shown.split()}
    series = f"{name}{{{inside}}}"
    return _pair(alert, {series: "0 0 0 5x20"}, {series: "5x20"}, minute, **kept)


CASES: list[Case] = [
    *_pair("GPULeasePlanningStopped", {f"{PLAN}_count": "7x20"}, {f"{PLAN}_count": "0+60x20"}, 10),
    *_pair("GPULeasePlanningSlow", _buckets(slow=True), _buckets(slow=False), 15),
    *_counter("gpulease_errors_total", "GPULeaseErrors", 6, "reason", reason="internal"),
    *_pair(
        "GPULeaseWaitingWhileFree",
        {QUEUE: "1x20", FREE: "1x20"},
        {QUEUE: "1x20", FREE: "0x20", OTHER: "1x20"},
        10,
        pool="cards",
    ),
    *_gauge(
        "gpulease_longest_overdue_seconds", "GPULeaseReclaimOverdue", "90", "50", gpu_class="t4"
    ),
    *_gauge("gpulease_longest_silence_seconds", "GPULeaseNoEvidence", "301", "299", gpu_class="t4"),
    *_gauge("gpulease_alerts", "GPULeaseMassIdle", "1", "0", reason="mass_idle"),
    *_gauge("gpulease_alerts", "GPULeasePolicyFile", "1", "0", reason="policy_file"),
    *_gauge("gpulease_alerts", "GPULeaseAdopted", "2", "0", reason="adopted"),
    *_gauge("gpulease_alerts", "GPULeaseSecondSupervisor", "1", "0", reason="second_supervisor"),
    *_gauge("gpulease_alerts", "GPULeaseStuckProcesses", "1", "0", reason="stuck"),
    *_counter("gpulease_capacity_taken_total", "GPULeaseForeignCapacity", 8, "pool", pool="cards"),
    # One is bad luck.
    Case(
        "GPULeaseForeignCapacity",
        {'gpulease_capacity_taken_total{pool="cards"}': "0 0 1x20"},
        30,
        None,
    ),
    *_counter(
        "gpulease_ended_total",
        "GPULeaseFailures",
        10,
        "gpu_class",
        gpu_class="t4",
        reason="failed",
    ),
    *_counter("gpulease_parked_total", "GPULeaseDrainsParked", 10, "gpu_class", gpu_class="t4"),
    *_counter("gpulease_errors_total", "GPULeaseStoreAway", 6, reason="store_unavailable"),
    *_pair("GPULeaseDevicesLost", devices("lost", 2), devices("lost", 1), 10, pool="cards"),
    *_pair(
        "GPULeaseQuarantine", devices("quarantined", 2), devices("quarantined", 1), 10, pool="cards"
    ),
    *_counter(
        "gpulease_cluster_requests_total",
        "GPULeaseClusterRefuses",
        6,
        "verb resource",
        verb="create",
        resource="pods",
        code="403",
    ),
    *_pair(
        "GPULeaseClusterAway",
        {'gpulease_cluster_requests_total{verb="list", resource="pods", code="0"}': "0+60x20"},
        {'gpulease_cluster_requests_total{verb="list", resource="pods", code="200"}': "0+60x20"},
        10,
    ),
    *_pair(
        "GPULeaseAgentMissing",
        {DAEMONS: "1x20"},
        {DAEMONS: "0x20"},
        10,
        namespace="gpulease-system",
        daemonset="gpulease-agent",
    ),
    *_gauge("gpulease_agent_up", "GPULeaseAgentPartDown", "0", "1", node="n1", part="driver"),
    Case(
        "GPULeaseAgentPartDown", {'gpulease_agent_up{node="n1", part="events"}': "0x20"}, 10, None
    ),
    *_counter(
        "gpulease_agent_incidents_total", "GPULeaseDeviceFault", 6, "node", node="n1", kind="xid"
    ),
    Case(
        "GPULeaseDeviceFault",
        {'gpulease_agent_incidents_total{node="n1", kind="program"}': "0 0 0 5x20"},
        6,
        None,
    ),
    Case(
        "GPULeaseServiceDown",
        {UP: "0x20"},
        10,
        {},
    ),
    Case("GPULeaseServiceDown", {}, 10, {}),
    Case("GPULeaseServiceDown", {UP: "1x20"}, 10, None),
]


def document(rules: list[dict[str, Any]], file: str) -> dict[str, Any]:
    """Return the document that ``promtool test rules`` takes."""
    told = {rule["alert"]: rule for rule in rules}
    return {
        "rule_files": [file],
        "evaluation_interval": "1m",
        "tests": [_test(case, told[case.alert]) for case in CASES],
    }


def _test(case: Case, rule: dict[str, Any]) -> dict[str, Any]:
    expected: list[dict[str, Any]] = []
    if case.labels is not None:
        expected = [{"exp_labels": {**rule["labels"], **case.labels}}]
    return {
        "interval": "1m",
        "name": f"{case.alert}, {'fires' if expected else 'is silent'}",
        "input_series": [
            {"series": name, "values": values} for name, values in case.series.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{case.minute}m",
                "alertname": case.alert,
                "exp_alerts": expected,
            }
        ],
    }
