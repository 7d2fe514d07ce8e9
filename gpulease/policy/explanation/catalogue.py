"""The words that are not the holder's: of refusals, and for those who look after others' leases.

These are catalogues by code.  ``REFUSALS`` says of each what it means and what to do next; the
sentence that a person reads is written where it is raised, and holds the numbers.  Admins have the
way on with somebody's lease, alerts, and why a lease changed; the codes are those of ``reasons``,
whose own words speak to the holder.
"""

from __future__ import annotations

from typing import Final

from gpulease.policy import reasons
from gpulease.policy.reasons import Words
from gpulease.texts import Text

REFUSALS: Final[Words] = {
    "unknown_class": ("There is no such GPU class.", "Ask for a class that is on offer."),
    "unknown_person": ("Nothing is stored under this name.", "See how the hub writes it."),
    "unknown_project": ("You are not in this project.", "Name one of your projects, or none."),
    "class_not_allowed": ("The project has no such GPUs.", "Ask for a class that it has."),
    "no_such_run": ("There is no such run of yours.", "See your runs: gpulease runs."),
    "run_changed": ("The run was changed meanwhile.", "Look at it again."),
    "runs_not_set_up": ("Whole notebooks cannot be run here.", "Ask an admin to switch it on."),
    "too_many_runs": ("Too many runs have not ended.", "Cancel some, or wait."),
    "bad_count": ("That many GPUs are not available.", "Ask for fewer, at least one."),
    "bad_nodes": (
        "The GPUs cannot be divided among that many nodes.",
        "Ask for another number of GPUs, or for one node.",
    ),
    "bad_needs": ("No GPU meets the request.", "Demand less, or another class."),
    "bad_duration": ("This duration is not valid.", "Ask for a positive duration."),
    "other_lease": ("The server has another lease already.", "Release it first."),
    "queue_full": ("The queue is full.", "Try again in a few minutes."),
    "too_many_waiting": ("Too many requests of this person wait.", "Withdraw one of them."),
    "too_many_changes": ("Too many changes in a short time.", "Wait as long as it says."),
    "too_many_requests": ("Too many requests in a short time.", "Wait as long as it says."),
    "too_many_channels": ("Too many live channels are open.", "Close a page, then try again."),
    "no_such_server": ("The hub knows no such server.", "Name one of your servers."),
    "cell_running": (
        "A cell is running on the GPU that you want to release.",
        "Wait until it ends, or release the GPU anyway.",
    ),
    "nothing_wished": (
        "The lease is what was requested.",
        "For another GPU, release it first, then request that.",
    ),
    "wish_not_free": (
        "What was asked for is not free at present.",
        "Keep working with what you have. You get a note when it is.",
    ),
    "keep_not_possible": ("The lease cannot be kept now.", "Request a GPU again afterwards."),
    "keep_used_up": ("Keep was used as often as allowed.", "Use the GPU: then it stays."),
    "not_possible_now": ("The lease is in another state.", "Look at the lease again."),
    "bad_policy": ("The policy document has mistakes.", "Correct the lines named."),
    "policy_changed": ("Somebody saved another policy.", "Load it and change it again."),
    "policy_pinned": ("The policy comes from a file.", "Change the file."),
    "bad_calendar": (
        "The time of a reservation is not valid.",
        "Correct the fields that are named.",
    ),
    "reservation_refused": ("This may not be reserved here.", "Stay within the bound named."),
    "reservation_conflict": ("It does not fit beside what is reserved.", "Take what is offered."),
    "no_such_reservation": ("There is no such reservation.", "Look at the list of them."),
    "reservation_changed": ("The reservation changed meanwhile.", "Look at it again."),
    "capacity_unknown": (
        "The GPUs of this site are not known at present.",
        "Try again in a minute.",
    ),
    "name_taken": ("The group has a reservation of this name.", "Choose another name."),
    "may_not_reserve": ("You may not reserve for this group.", "Ask an admin for the right."),
    "not_your_hub": ("A person named here belongs to another hub.", "Name people of your hub."),
    "store_unavailable": ("The lease database cannot be used.", "Try again; tell an admin."),
    "store_in_use": ("Another service writes to the database.", "Stop the other service."),
    "store_fenced": ("Another service took the database over.", "Stop this service."),
    "store_replaced": ("The database is not as the service left it.", "Put the right one back."),
    "file_open_to_others": ("Others can read the service's files.", "Give them mode 0600."),
    "bad_key_file": ("The service's key file cannot be used.", "Name a file it may write."),
    "store_not_empty": ("The database holds leases.", "Name an empty one, or say --replace."),
    "bad_backup": ("The backup cannot be restored.", "Restore another one."),
    "file_exists": ("The file is there already.", "Name a new file."),
    "no_database": ("It is not known which database.", "Give --database."),
    "still_leasing": ("The person has leases that have not ended.", "End them first."),
    "store_behind": ("The database is of an older version.", "Run `gpulease db upgrade`."),
    "store_ahead": ("The database is of a newer version.", "Install the newer gpulease."),
    "bad_database": ("The database address cannot be used.", "Correct the address."),
    "version_conflict": ("The lease changed meanwhile.", "Look at the lease again."),
    "device_taken": ("The GPU belongs to another lease.", "Nothing to do: it is planned again."),
    "key_reused": ("The idempotency key was used before.", "Use a new key."),
    "internal": ("Something went wrong here.", "Tell an admin the reference."),
    "not_logged_in": ("You are not logged in.", "Log in to the hub."),
    "xsrf_failed": ("This request is not from a page of this log-in.", "Load the page again."),
    "cross_site": ("Another page asked for this.", "Open the lease service's own page."),
    "forbidden": ("You may not do this.", "Ask an admin for the right."),
    "no_access": ("This token gives no rights here.", "Restart your server once."),
    "may_not_ask": ("You may not request GPUs.", "Ask an admin for the right."),
    "may_not_measure": ("The token may not read figures.", "Give it the scope read:metrics."),
    "admins_only": ("Only admins may do this.", "Ask an admin."),
    "not_yours": ("This belongs to somebody else.", "Look at your own leases."),
    "no_such_lease": ("There is no such lease.", "Look at the list of leases."),
    "no_server": ("There is no such running server.", "Start your server first."),
    "which_server": ("Several servers run.", "Say for which one you ask."),
    "hub_unreachable": ("The hub does not answer.", "Try again in a moment."),
    "not_a_warm_pod": (
        "The token is of no pod that stands ready.",
        "Nobody but such a pod has business here.",
    ),
    "not_an_agent": ("The token is no node agent's.", "Post with the agent's own token."),
    "cluster_unreachable": ("The cluster does not answer.", "Try again in a moment."),
    "wrong_protocol": ("The two ends are of different versions.", "Run the same version."),
    "malformed_json": ("The body is not JSON.", "Send a JSON object."),
    "invalid_body": ("The body has wrong members.", "Correct the members named."),
    "invalid_key": (
        "The key by which a repeat is known is too long.",
        "Send an Idempotency-Key of at most 200 characters.",
    ),
    "invalid_query": ("The query has wrong parameters.", "Correct the parameters named."),
    "body_too_large": ("The body is too large.", "Send less."),
    "method_not_allowed": ("This address has no such method.", "See api/openapi.json."),
    "not_json": ("The body is not declared as JSON.", "Send application/json."),
    "not_found": ("There is nothing at this address.", "See api/openapi.json."),
    "may_not_tell": ("You may not write to this group.", "Name a group that you teach."),
    "not_your_group": ("You do not teach this group.", "See the list at groups."),
    "no_history": ("Nobody had a GPU in this time.", "Try again when GPUs were used."),
    "whatif_busy": ("Another what-if is running.", "Ask again in a minute."),
    "whatif_too_long": ("Replaying these days takes too long.", "Ask for fewer days."),
    "no_such_version": ("There is no such version of the policy.", "Look at the list of them."),
    "not_your_page": ("This page is somebody else's.", "Open your own page."),
    "upgrade_required": ("This address speaks websocket only.", "Open a websocket."),
    "bad_option": ("An option of the service is wrong.", "Correct the option named."),
    "no_kubernetes": ("A package is missing.", "Install gpulease[kubernetes]."),
    "companion_unreachable": ("The companion is not connected.", "Try again in a moment."),
    "not_active": ("The lease is not active.", "Wait until it is."),
    "holds_nothing": (
        "No process of this lease keeps a GPU out of service.",
        "If it ended just now, wait: its processes are ended first.",
    ),
    "not_this_lease": ("The token is another lease's.", "Nothing to do."),
    "cannot_prove": ("Nobody can check a supervisor's token at present.", "It tries again."),
    "lease_ended": ("The lease has ended.", "Request a GPU again."),
    "companion_silent": ("The companion does not answer.", "Try again in a moment."),
}


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
    "volume_failed": "Check why the home's volume cannot be mounted on the GPU's node.",
    "cluster_unreachable": "See whether the cluster's API server answers the service.",
    "server_pod_missing": "Check that the hub starts servers in the namespace that the service is "
    "set to.",
    "device_unhealthy": "Look at the device's health; it is not given out until it is well.",
    "device_lost": "See whether the machine and its driver are up.",
    "not_home": "Nothing: its holder decides what may be lost.",
    "undrainable": "If the GPU is needed, end the lease: what cannot travel is parked or lost.",
}

#: What an admin is told.
ALERTS: Final[Words] = {
    "second_supervisor": (
        "A second supervisor with another key was refused for a lease.",
        "End the lease: somebody else has its token. Check who can read the service's key file.",
    ),
    "stuck": (
        "Processes of an ended lease still run, and the service may not end them.",
        "End them, or put their GPU back into service on the page Health.",
    ),
    "mass_idle": (
        "Many leases turned idle in the same moment: nothing is reclaimed for now.",
        "Check the GPU probe; reclaim continues by itself later.",
    ),
    "no_data": ("There is no evidence of use for a lease.", "Look at its companion and the probe."),
    "foreign_capacity": (
        "Others take GPUs that had been granted: nothing is reclaimed in that pool for now.",
        "Taint the pool's nodes for gpulease alone.",
    ),
    "adopted": (
        "A lease runs that the database does not know; it ends after an hour.",
        "Look whether the database was restored from a backup.",
    ),
}


AUDITED: Final[dict[str, str]] = {
    "": "It waits for a GPU.",
    "adding_node": "A machine with a GPU is being added.",
    "adopted": "It was found running when the service started.",
    "asked": "A GPU was requested.",
    "asked_again": "The holder asked again in time.",
    "blocked": "Some variables could not be copied to the notebook.",
    "budget_back": "There are GPU-hours left after all.",
    "budget_over": "The GPU-hours are used up.",
    "busy_max": "For too long only the notebook itself had reported GPU use.",
    "claimed": "A notebook uses the GPU.",
    "cluster_queue": "It waits in the cluster's queue.",
    "connected": "The process on the GPU is there.",
    "done": "All variables are in the notebook.",
    "clock_set": "The service's clock had been wrong.",
    "drain_timeout": "The variables did not reach the notebook in time.",
    "gone": "The process on the GPU has ended.",
    "groups_changed": "The holder's groups changed.",
    "hard_end": "The lease's time is over.",
    "hold_lifted": "The lab does not need the GPU after all.",
    "idle": "The GPU was not used.",
    "kept": "The holder pressed Keep.",
    "member_limit": "One person of the project has reached their GPU limit.",
    "no_budget": "The GPU-hours are used up.",
    "no_data": "Nothing was known of the GPU's use.",
    "nobody_waits": "Nobody waited any more.",
    "node_back": "The GPU's machine stays after all.",
    "not_home": "Some variables cannot be copied to the notebook.",
    "over_share": "It held more of a shared GPU's memory than its share, which others lacked.",
    "parked": "What could not be copied to the notebook was parked, or is lost.",
    "policy_changed": "The time-outs were changed.",
    "preempted_in_part": "Somebody with priority needed some of its GPUs.",
    "project_limit": "The project has reached its limit for this kind of GPU.",
    "quiet": "A cell ran without using the GPU.",
    "quota_only": "The project's own GPUs are all in use, and none was to be borrowed.",
    "reserved_in_part": "Some of its GPUs are reserved for a lab.",
    "reshaped": "It continues with other GPUs: fewer, more, or of another class.",
    "returned": "The GPU was released.",
    "within_share": "Nobody lacks the memory any more.",
    "seats_taken": "The group's lab is on, and all of its seats are taken.",
    "server_limit": "The server has reached its lease limit.",
    "server_pod_missing": "The notebook server is not to be found in the cluster.",
    "server_ready": "The notebook server is ready.",
    "server_starting": "The notebook server is still starting.",
    "start_timeout": "The process on the GPU did not start in time.",
    "starting": "A GPU was granted; the process on it is starting.",
    "unclaimed": "The GPU was not claimed.",
    "undrainable": "Some variables cannot be copied to the notebook.",
    "unknown_class": "Its GPU class is not on offer any more.",
    "used": "The GPU is in use again.",
    "user_limit": "The holder has reached the lease limit for one person.",
    "volume_failed": "The holder's home could not be mounted on the GPU's node.",
    "window_coming": "The group has a lab soon.",
    "withdrawn": "The request was withdrawn.",
}

#: Of what says the same to everybody.
_OTHERS: Final = (
    reasons.WAITING,
    reasons.STARTING,
    reasons.ACTIVE,
    reasons.LEAVING,
    reasons.ENDED,
    reasons.CAUSES,
    ALERTS,
)


def audited(code: str) -> str:
    """Return the sentence of a change's reason code; one of another version stands for itself."""
    if code in AUDITED:
        return Text(AUDITED[code])
    for words in _OTHERS:
        if code in words:
            return Text(words[code][0])
    return code.replace("_", " ")
