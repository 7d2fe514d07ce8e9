"""The pods of a class that stand ready ahead, in the policy document::

    warm: {pods: 1, hours: {Mon-Fri 08:00-18:00: 4}, zone: Europe/Berlin}

Owns its form and which classes can have it.  ``pods`` holds outside of the hours that are named.
"""

from __future__ import annotations

import re
from typing import Any, Final
from zoneinfo import available_timezones

from gpulease.policy.document.nodes import Reader
from gpulease.policy.pods import AskKind, PodAsk, Warm, WarmHours
from gpulease.texts import Text

WARM: Final = ("pods", "hours", "zone")
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(
    r"(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?\s+"
    r"(?P<h1>\d\d):(?P<m1>[0-5]\d)-(?P<h2>\d\d):(?P<m2>[0-5]\d)",
    re.IGNORECASE,
)
_DAY_MINUTES: Final = 24 * 60
#: Kinds of which a device that a pod holds is the same one whoever uses it then.
_KINDS: Final = (AskKind.DEVICE_PLUGIN, AskKind.SHARED, AskKind.MIG)


def read_warm(gpu_class: Reader, ask: PodAsk | None) -> Warm | None:
    """Read a class's section, ``None`` where it has none; what is wrong is noted.

    Args:
        gpu_class: the class's mapping.
        ask: how a cluster is asked for it.
    """
    if "warm" not in gpu_class.names:
        return None
    section = gpu_class.section("warm", WARM)
    hours = section.section("hours", None)
    zone = section.text("zone", Warm.zone)
    if zone not in available_timezones():
        section.wrong(
            "zone",
            Text("'{zone}' is no time zone.", zone=zone),
            Text("Write for example Europe/Berlin."),
        )
        zone = Warm.zone
    spans = [_span(hours, name) for name in hours.names]
    found = Warm(
        section.whole("pods", Warm.pods, least=0),
        tuple(each for each in spans if each is not None),
        zone,
    )
    _check(gpu_class, ask or PodAsk())
    return found


def _span(hours: Reader, name: str) -> WarmHours | None:
    pods = hours.whole(name, 0, least=0)
    read = _HOURS.fullmatch(name.strip())
    if read is not None:
        start = int(read["h1"]) * 60 + int(read["m1"])
        end = int(read["h2"]) * 60 + int(read["m2"])
        first, last = read["first"].lower(), (read["last"] or read["first"]).lower()
        if first in _DAYS and last in _DAYS and start < end <= _DAY_MINUTES:
            begin, length = _DAYS.index(first), (_DAYS.index(last) - _DAYS.index(first)) % 7 + 1
            days = tuple(sorted((begin + each) % 7 for each in range(length)))
            return WarmHours(days, start, end, pods)
    hours.wrong(
        name,
        Text("'{hours}' are no hours of the week.", hours=name),
        Text("Write for example `Mon-Fri 08:00-18:00: 4`; a day ends at 24:00."),
    )
    return None


def _check(gpu_class: Reader, ask: PodAsk) -> None:
    """Note what keeps pods of such a class from standing ready for anybody."""
    if not ask.image:
        gpu_class.wrong(
            "warm",
            Text("A pod that stands ready needs an image before it is known whose it will be."),
            Text("Name it: `pod: {image: ...}`."),
        )
    if ask.queue is not None:
        gpu_class.wrong(
            "warm",
            Text("What a cluster's queue admits cannot stand ready for somebody else."),
            Text("Remove `warm` here or the queue."),
        )
    elif ask.kind not in _KINDS:
        gpu_class.wrong(
            "warm",
            Text("Pods of kind {kind} cannot stand ready.", kind=ask.kind.value),
            Text("Whole cards, shares of cards and MIG slices can."),
        )


def warm_tree(warm: Warm | None) -> dict[str, Any]:
    """Return the section as the document has it, without what is as by default."""
    if warm is None:
        return {}
    tree: dict[str, Any] = {"pods": warm.pods}
    if warm.hours:
        tree["hours"] = {_said(each): each.pods for each in warm.hours}
    if warm.zone != Warm.zone:
        tree["zone"] = warm.zone
    return {"warm": tree}


def _said(hours: WarmHours) -> str:
    """Return hours as they are written; days that run over the week's end begin behind the gap."""
    days = set(hours.days)
    first = next((each for each in hours.days if (each - 1) % 7 not in days), 0)
    last = (first + len(days) - 1) % 7
    start, end = (f"{each // 60:02d}:{each % 60:02d}" for each in (hours.start, hours.end))
    names = [_DAYS[each].capitalize() for each in (first, last)]
    return f"{'-'.join(dict.fromkeys(names))} {start}-{end}"
