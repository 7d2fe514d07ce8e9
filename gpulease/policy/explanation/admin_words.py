"""What admins are told: the way on with somebody's lease, and alerts.

A catalogue by code; the codes are those of ``reasons``.  ``{name}`` are numbers that
``explain`` fills in.
"""

from __future__ import annotations

from typing import Final

from gpulease.policy.explanation.reasons import Words

_LOG: Final = "Look for the lease {lease} in the service's log."
_CLASS: Final = "Compare the class's settings with the cluster's nodes."

#: What an admin can do about a lease of somebody else, by its reason or the cause of its end.  A
#: code that is not here needs nothing of an admin.
ADMIN_STEPS: Final[dict[str, str]] = {
    "quarantined": "Look at the health of the pool's devices: too few of them work.",
    "supervisor_failed": _LOG,
    "start_timeout": _LOG,
    "failed": _LOG,
    "image_error": "Check the image's name and the right to pull it.",
    "no_gpulease": "Install gpulease in the class's image, in the service's version.",
    "other_version": "Install the service's version of gpulease in the class's image.",
    "container_error": "Look at the events of the lease's pod.",
    "out_of_memory": "Give the class more memory if this happens often.",
    "unschedulable": _CLASS,
    "claim_failed": _CLASS,
    "node_not_added": "Look at the cluster's autoscaler: its events are with the lease's pod.",
    "admission_refused": "Change the cluster's rule, or the class's settings, so that they agree.",
    "quota_exceeded": "Raise the quota of the leases' namespace, or let leases end.",
    "volume_failed": "Look why the home's volume cannot be mounted where the GPU is.",
    "cluster_unreachable": "See whether the cluster's API server answers the service.",
    "server_pod_missing": "See whether the hub spawns into the namespace that the service is told.",
    "device_unhealthy": "Look at the device's health; it is not given out until it is well.",
    "device_lost": "See whether the machine and its driver are up.",
    "not_home": "Nothing: its holder decides what may be lost.",
    "undrainable": "If the GPU is needed, end the lease: what cannot travel is parked or lost.",
}

#: What an admin is told.
ALERTS: Final[Words] = {
    "second_supervisor": (
        "A second supervisor came for a lease with another key, and was refused.",
        "End the lease: somebody else has its token. Look who may read the service's key file.",
    ),
    "stuck": (
        "Processes of a lease that is over live on, and the service may not end them.",
        "End them, or put their GPU back into service on the page Health.",
    ),
    "mass_idle": (
        "Many leases turned idle in the same moment: nothing is reclaimed for now.",
        "Look at the GPU probe; reclaim goes on by itself later.",
    ),
    "no_data": ("No evidence of use has come for a lease.", "Look at its companion and the probe."),
    "foreign_capacity": (
        "Others take GPUs that had been granted: nothing is reclaimed in that pool for now.",
        "Taint the pool's nodes for gpulease alone.",
    ),
    "adopted": (
        "A lease runs that the database does not know; it ends after an hour.",
        "Look whether the database was restored from a backup.",
    ),
}
