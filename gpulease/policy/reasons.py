"""Every reason code with its words.

The catalogue has for each code a sentence and what to do next.  ``{name}`` are numbers that
``explain`` fills in.  Which step of a lease may have which of them says ``lifecycle.table``.
"""

from __future__ import annotations

from typing import Final

#: What a start meets while it stays in one stage, in words for its holder; the cluster's own words,
#: with their names of machines and images, are for admins.
PROGRESS: Final[dict[str, str]] = {
    "": "",
    "asked_again": "The cluster does not answer at present; it is asked again.",
    "no_room_yet": "No machine has room for it yet; the cluster keeps trying.",
    "pulled_again": "It could not be loaded at once; the cluster tries again.",
    "files_not_there": "Your files cannot be reached there yet; the cluster tries again.",
    "claim_not_ready": "The GPU is not ready there yet; the cluster tries again.",
    "in_cluster_queue": "Other requests are ahead of it.",
    "cluster_quota": "The queue's share of the GPUs is in use.",
    "cluster_queue_again": "Others were served first. It is in the queue again.",
    "cluster_queue_stopped": "The queue admits nothing at present: an admin has to look at it.",
}

#: Code -> (sentence, next step).
Words = dict[str, tuple[str, str]]

#: Next steps that several reasons have.
_WAIT_STEP: Final = "It starts by itself when a GPU is free; you can work on without one meanwhile."
_AGAIN: Final = "It is tried again in a moment; try {failures} of {max_failures} failed."
_RUN: Final = "Run GPU cells as you like."
_SAVED: Final = "Your variables are saved to the notebook."
_SAVED_IF: Final = "Your variables are saved to the notebook if that is possible."
_NEW_REQUEST: Final = "Run the cell again. It sends a new request."
_BY_ITSELF: Final = "The next GPU cell asks again by itself."
_ANOTHER: Final = "Another one is looked for; your place in the queue stays."
_FEW_SECONDS: Final = "It takes a few seconds."
_REQUEST: Final = "Request a GPU again when you need one."

#: Why a request waits.
WAITING: Final[Words] = {
    "": ("Your request was just received.", _WAIT_STEP),
    "no_capacity": ("All GPUs of this class are in use.", _WAIT_STEP),
    "capacity_taken": ("The GPU was taken by other work before it could be used.", _WAIT_STEP),
    "user_limit": (
        "You hold {user_limit} GPU leases, the limit for one person.",
        "Release one, or wait until one ends.",
    ),
    "server_limit": (
        "This server still holds {server_limit} lease, the limit for one server.",
        "It starts when the present one has ended.",
    ),
    "held": ("A GPU is free but kept for an earlier request.", _WAIT_STEP),
    "quarantined": (
        "Too few GPUs of this class work at present.",
        "An admin has to look at them; your place in the queue stays.",
    ),
    "reserved": (
        "The GPUs of this class are reserved for a lab.",
        "It starts when one is free again. If you were added to the lab's group after you signed "
        "in, sign out of the hub and sign in again.",
    ),
    "window_coming": (
        "Your group has a lab soon: its GPUs are being made available for it.",
        "Yours starts by itself shortly before the lab begins.",
    ),
    "seats_taken": (
        "Your group's lab is on, and all of its seats are taken.",
        "It starts by itself when somebody in the lab releases a GPU.",
    ),
    "project_limit": (
        "Your project {project} has reached its limit for this kind of GPU.",
        "It starts when one of the project's leases ends, or ask for another project.",
    ),
    "member_limit": (
        "You have reached the limit of one person of project {project} for this kind of GPU.",
        "Release one, or wait until one ends.",
    ),
    "quota_only": (
        "The GPUs of your project {project}'s own are all in use, and you asked not to borrow.",
        "It starts when one of them is free; without --in-quota-only it may start earlier.",
    ),
    "no_budget": (
        "The GPU-hours of project {project} are used up, or yours in it.",
        "It starts when there are new ones; ask the project's owner for more, or ask for another "
        "project.",
    ),
    "server_starting": (
        "Your notebook server is still starting.",
        "The GPU follows when the server is up.",
    ),
    "backing_off": ("The last start failed.", "It is tried again in a moment."),
    "supervisor_failed": ("The process on the GPU could not be started.", _AGAIN),
    "start_timeout": ("The process on the GPU did not start within {start_max}.", _AGAIN),
    "image_error": ("The environment on the GPU could not be loaded.", _AGAIN),
    "no_gpulease": (
        "The environment on the GPU lacks gpulease.",
        "An admin has to install it there; try {failures} of {max_failures} failed.",
    ),
    "other_version": (
        "The environment on the GPU has a gpulease that the lease service does not understand.",
        "An admin has to bring it up to date there; try {failures} of {max_failures} failed.",
    ),
    "container_error": ("The cluster could not start the process on the GPU.", _AGAIN),
    "out_of_memory": ("The process on the GPU needed more memory than it may have.", _AGAIN),
    "unschedulable": (
        "No machine of the cluster takes this GPU class at present.",
        "An admin has to look at the class; try {failures} of {max_failures} failed.",
    ),
    "admission_refused": (
        "A rule of the cluster refused the process on the GPU.",
        "An admin has to look at it; try {failures} of {max_failures} failed.",
    ),
    "claim_failed": ("The GPU was assigned but could not be prepared.", _AGAIN),
    "quota_exceeded": (
        "The quota that the cluster sets here is used up.",
        "It starts by itself when somebody ends a lease; your place in the queue stays.",
    ),
    "evicted": ("The cluster took the machine back before the GPU was ready.", _ANOTHER),
    "node_lost": ("The machine with the GPU stopped answering.", _ANOTHER),
    "volume_failed": (
        "Your home could not be mounted on the GPU's node.",
        "It is tried again with a copy of your working directory instead.",
    ),
    "cluster_unreachable": (
        "The cluster does not answer.",
        "It is tried again in a moment; your place in the queue stays.",
    ),
    "device_unhealthy": ("The GPU reported a fault.", "Another one is looked for."),
    "server_pod_missing": (
        "Your notebook server is not to be found in the cluster.",
        "It is tried again in a moment; restart your server if it stays so.",
    ),
    "paused": (
        "The admins grant no GPUs of this kind at present.",
        "It starts by itself when they do again; your place in the queue stays.",
    ),
    "cluster_queue_full": (
        "The cluster's queue has reached its limit of waiting requests of this class.",
        "It joins that queue by itself when one of them has its GPU.",
    ),
    "node_not_added": (
        "No machine was added in time.",
        "It is tried again in a minute; your place in the queue stays.",
    ),
    "came_free": ("A GPU became free before a machine was added.", "It starts in a moment."),
    "reshaped": (
        "Your variables are in your notebook; {count} of class {class} are kept for you.",
        "It continues by itself in a moment.",
    ),
    "queue_preempted": (
        "The cluster's queue gave the GPU to others before it was ready.",
        "It is in the queue again; its old place is lost.",
    ),
}

#: What a starting lease does, in the order in which it happens.
STARTING: Final[Words] = {
    "starting": ("GPU assigned. Starting …", _FEW_SECONDS),
    "cluster_queue": (
        "Your request waits in the cluster's queue.",
        "It starts by itself when the queue lets it in; you can work on without a GPU meanwhile.",
    ),
    "adding_node": (
        "A machine with a GPU is being added, which usually takes {provision}.",
        "It starts by itself then; you can work on without a GPU meanwhile.",
    ),
    "scheduling": ("A machine with a GPU is being found.", "It takes a moment."),
    "pulling": (
        "The environment is being loaded onto the GPU's machine.",
        "The first time this takes minutes; none of it is charged.",
    ),
    "starting_container": (
        "The environment is there; the process on the GPU is starting.",
        _FEW_SECONDS,
    ),
    "connecting": ("The process on the GPU is up and connects.", "It is ready in a moment."),
}

#: How an active lease came to be as it is.
ACTIVE: Final[Words] = {
    "connected": ("The GPU is ready.", "Run a cell with %%gpu, or %gpu on for every cell."),
    "used": ("The GPU is yours and in use again.", _RUN),
    "nobody_waits": ("Nobody waits any more; the GPU stays yours.", _RUN),
    "kept": ("Yours until {kept_until}.", "Until then it is not released for being idle."),
    "no_data": ("There is no data on the GPU's use at present; it stays yours.", _RUN),
    "policy_changed": ("The time-outs were changed; the GPU stays yours.", "Run GPU cells."),
    "asked_again": ("You asked again in time; the GPU stays yours.", _RUN),
    "node_back": ("The GPU's machine stays after all; the GPU stays yours.", _RUN),
    "not_home": (
        "You wanted to release the GPU, but some variables cannot be copied to your "
        "notebook. The GPU stays yours.",
        "Delete or save them (%gpu shows which), or release the GPU without them.",
    ),
    "hold_lifted": ("The lab does not need this GPU after all; it stays yours.", _RUN),
    "budget_back": ("There are GPU-hours left after all; the GPU stays yours.", _RUN),
    "within_share": ("The shared GPU has enough memory again; the GPU stays yours.", _RUN),
    "clock_set": ("The service's clock was wrong when you were warned; the GPU stays yours.", _RUN),
    "undrainable": (
        "The GPU was idle, but some variables cannot be copied to your notebook.",
        "Delete or move them (%gpu shows which); next time they are parked or lost.",
    ),
}

#: Why a lease is asked to leave; said while it is warned and while it drains.
LEAVING: Final[Words] = {
    "idle": (
        "The GPU has not been used for {idle}.",
        "Run a GPU cell or press Keep to keep it; your variables are saved to the notebook first.",
    ),
    "quiet": (
        "The GPU has not been used for {quiet}, though a cell ran meanwhile.",
        "Press Keep to keep it; else a cell that still runs is interrupted and your variables are "
        "saved to the notebook.",
    ),
    "busy_max": (
        "For {busy_max} only the notebook itself has reported GPU use.",
        "Press Keep to keep it; otherwise the running cell is interrupted and your "
        "variables are saved to the notebook.",
    ),
    "no_data": (
        "There has been no data on this GPU's use for long, and somebody is waiting.",
        "Press Keep to keep it; your variables are saved to the notebook first.",
    ),
    "unclaimed": (
        "This GPU was not claimed within {claim}.",
        "Run a GPU cell or press Keep to keep it.",
    ),
    "hard_end": (
        "The lease's time is over at {hard_end}.",
        "Save what matters; your variables are saved to the notebook, and you can request a "
        "GPU again.",
    ),
    "budget_over": (
        "The GPU-hours of project {project} are used up, or yours in it.",
        "Save what matters; your variables are saved to the notebook. Ask the project's owner "
        "for more.",
    ),
    "over_share": (
        "It holds more of the shared GPU's memory than its share, and others lack it for theirs.",
        "Free memory to stay (delete large variables there, torch.cuda.empty_cache()); else a "
        "running cell is interrupted and your variables are saved to the notebook.",
    ),
    "preempted": (
        "Somebody with priority needs this GPU.",
        "A running cell is interrupted; your variables are saved to the notebook.",
    ),
    "preempted_in_part": (
        "Somebody with priority needs {giving} of these GPUs; you keep {keeping}.",
        "A running cell is interrupted, your variables are saved to the notebook, and "
        "the next GPU cell uses the others.",
    ),
    "reserved_in_part": (
        "{giving} of these GPUs are reserved for a lab; you keep {keeping}.",
        "A running cell is interrupted, your variables are saved to the notebook, and "
        "the next GPU cell uses the others.",
    ),
    "reshaped": (
        "You asked for {becoming}: it is kept for you.",
        "Your variables are saved to the notebook, and it continues by itself in a moment.",
    ),
    "reserved": (
        "This GPU is reserved for a lab.",
        "Save what matters; your variables are saved to the notebook, and the next GPU cell "
        "asks for another one.",
    ),
    "window_over": (
        "The lab's reserved time is over.",
        "Save what matters; your variables are saved to the notebook first.",
    ),
    "node_leaving": (
        "The GPU's machine is being taken out of service.",
        "Your variables are saved to the notebook; the next GPU cell asks for another one by "
        "itself.",
    ),
    "returned": ("You released the GPU.", _SAVED),
    "forced": ("An admin or instructor ended this lease.", _SAVED),
    "device_unhealthy": ("The GPU reported a fault.", _SAVED_IF),
    "device_lost": ("The GPU is no longer available.", _SAVED_IF),
}

#: How a lease ended.
ENDED: Final[Words] = {
    "returned": ("You released the GPU.", _REQUEST),
    "idle": (
        "The GPU was released: it was not used.",
        "Your notebook keeps running; the next GPU cell requests one again.",
    ),
    "preempted": ("Somebody with priority needed the GPU.", _BY_ITSELF),
    "expired": ("The lease's time was over.", _BY_ITSELF),
    "window_over": ("The reserved time was over.", _REQUEST),
    "withdrawn": ("You withdrew the request.", _REQUEST),
    "denied": (
        "The request cannot be served: its GPU class is not on offer any more.",
        "Ask for another class.",
    ),
    "failed": (
        "The GPU or the process on it failed.",
        "Run the cell again; if it fails again, tell an admin the lease {lease}.",
    ),
    "server_gone": (
        "The notebook server that held the GPU has stopped.",
        "Start your server and request a GPU again.",
    ),
    "run_ended": (
        "The server of this background run has stopped.",
        "Background runs, on the page My GPU or by `gpulease runs`, show the result.",
    ),
    "forced": ("An admin or instructor ended this lease.", "Request a GPU again, or ask them."),
}

_TELL: Final = "Tell an admin the lease {lease}."

#: Why a lease ended, where that is known more exactly; said instead of the general words.
CAUSES: Final[Words] = {
    "node_leaving": ("The machine with the GPU was taken out of service.", _NEW_REQUEST),
    "budget_over": (
        "The GPU-hours were used up.",
        "Ask the project's owner for more.",
    ),
    "over_share": (
        "The lease held more of a shared GPU's memory than its share, and others lacked it.",
        "The next GPU cell asks again by itself; use less memory there, or ask for a class with "
        "more.",
    ),
    "out_of_memory": (
        "The process on the GPU needed more memory than it may have, and was ended.",
        "Free what you do not need, or ask for a class with more memory; then run the cell again.",
    ),
    "evicted": ("The cluster took the machine with the GPU back.", _NEW_REQUEST),
    "queue_preempted": (
        "The cluster's queue gave the GPU to others.",
        "Run the cell again. It sends a new request, which starts at the end of the queue.",
    ),
    "node_lost": ("The machine with the GPU stopped answering.", _NEW_REQUEST),
    "start_timeout": (
        "The process on the GPU ran out of the time that it was given.",
        f"Run the cell again; if it fails again: {_TELL[0].lower()}{_TELL[1:]}",
    ),
    "image_error": ("The environment on the GPU could not be loaded.", _TELL),
    "no_gpulease": ("The environment on the GPU lacks gpulease.", _TELL),
    "other_version": (
        "The environment on the GPU has a gpulease that the lease service does not understand.",
        _TELL,
    ),
    "container_error": ("The cluster could not start the process on the GPU.", _TELL),
    "unschedulable": ("No machine of the cluster takes this GPU class.", _TELL),
    "admission_refused": ("A rule of the cluster refused the process on the GPU.", _TELL),
    "claim_failed": ("The GPU was assigned but could not be prepared.", _TELL),
}
