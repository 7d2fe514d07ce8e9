"""Why a lease changed, as those read it who look after others' leases.

The words of ``reasons`` speak to the holder and with the holder's numbers; where they do, the audit
has its own.
"""

from __future__ import annotations

from typing import Final

from gpulease.policy.explanation import admin_words, reasons
from gpulease.texts import Text

AUDITED: Final[dict[str, str]] = {
    "": "It waits for a GPU.",
    "adding_node": "A machine with a GPU is being added.",
    "adopted": "It was found running when the service started.",
    "asked": "A GPU was requested.",
    "asked_again": "The holder asked again in time.",
    "blocked": "Some variables could not be brought to the notebook.",
    "budget_back": "There are GPU-hours left after all.",
    "budget_over": "The GPU-hours are used up.",
    "busy_max": "For too long nothing but the lease's own word had said that the GPU is used.",
    "claimed": "A notebook uses the GPU.",
    "cluster_queue": "It waits in the cluster's queue.",
    "connected": "The process on the GPU is there.",
    "done": "All variables are in the notebook.",
    "clock_set": "The service's clock had been wrong.",
    "drain_timeout": "The variables did not come to the notebook in time.",
    "gone": "The process on the GPU has ended.",
    "groups_changed": "The holder's groups changed.",
    "hard_end": "The lease's time is over.",
    "hold_lifted": "The lab does not need the GPU after all.",
    "idle": "The GPU was not used.",
    "kept": "The holder pressed Keep.",
    "member_limit": "One person of the project holds as many GPUs as they may.",
    "no_budget": "The GPU-hours are used up.",
    "no_data": "Nothing was known of the GPU's use.",
    "nobody_waits": "Nobody waited any more.",
    "node_back": "The GPU's machine stays after all.",
    "not_home": "Some variables cannot be brought to the notebook.",
    "over_share": "It held more of a shared GPU's memory than its share, which others lacked.",
    "parked": "What could not be brought to the notebook was parked, or is lost.",
    "policy_changed": "The time-outs were changed.",
    "preempted_in_part": "Somebody with a prior claim needed some of its GPUs.",
    "project_limit": "The project holds as many GPUs of this kind as it may.",
    "quiet": "A cell ran without using the GPU.",
    "quota_only": "The project's own GPUs are all in use, and none was to be borrowed.",
    "reserved_in_part": "Some of its GPUs are reserved for a lab.",
    "reshaped": "It goes on with other GPUs: fewer, more, or of another class.",
    "returned": "The GPU was given back.",
    "within_share": "Nobody lacks the memory any more.",
    "seats_taken": "The group's lab is on, and all of its seats are taken.",
    "server_limit": "The server holds as many leases as one may.",
    "server_pod_missing": "The notebook server is not to be found in the cluster.",
    "server_ready": "The notebook server is ready.",
    "server_starting": "The notebook server is still starting.",
    "start_timeout": "The process on the GPU did not come up in time.",
    "starting": "A GPU was granted; the process on it is starting.",
    "unclaimed": "Nobody came for the GPU.",
    "undrainable": "Some variables cannot be brought to the notebook.",
    "unknown_class": "Its GPU class is not on offer any more.",
    "used": "The GPU is in use again.",
    "user_limit": "The holder has as many leases as one person may.",
    "volume_failed": "The holder's home could not be mounted where the GPU is.",
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
    admin_words.ALERTS,
)


def audited(code: str) -> str:
    """Return the sentence of a change's reason code; one of another version stands for itself."""
    if code in AUDITED:
        return Text(AUDITED[code])
    for words in _OTHERS:
        if code in words:
            return Text(words[code][0])
    return code.replace("_", " ")
