"""Which pod a process of the node is in, by its control group.

``/proc/PID/cgroup`` is read in every form that kubelets and runtimes write: version 1 and 2,
cgroupfs and systemd, all QoS classes.  Only the outermost pod counts, because a container can make
any group inside its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

#: The place of a process that is in no pod: the node's own.
NODE = ""
#: Seconds for which an ended process is still remembered: the driver tells of it a moment later.
_REMEMBERED = 15.0

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
#: One part of a path: ``podUID``, ``kubepods-burstable-podUID.slice``, and containerd's
#: ``kubepods-podUID.slice:cri-containerd:ID``.
_POD = re.compile(rf"(?:kubepods|[\w.-]*-kubepods)?(?:-(?:burstable|besteffort))?-?pod({_UID})")
_END = re.compile(r"(?:\.slice)?(?::.*)?")


def pod_of(text: str) -> str | None:
    """Return the pod UID that a ``/proc/PID/cgroup`` names.

    ``NODE`` where it names none, ``None`` where its lines contradict each other.
    """
    named = {found for line in text.splitlines() if (found := _pod_in(line))}
    if len(named) > 1:
        return None
    return named.pop() if named else NODE


def _pod_in(line: str) -> str:
    path = line.partition(":")[2].partition(":")[2]
    for part in path.split("/"):
        found = _POD.match(part)
        if found and _END.fullmatch(part, found.end()):
            return _canonical(found[1])
    return ""


def _canonical(uid: str) -> str:
    # A static pod's UID is a hash without dashes, and is written so by the API too.
    return uid.replace("_", "-")


@dataclass
class Places:
    """Where the processes of this node are.

    Args:
        proc: the proc file system of the node, which needs the pod's ``hostPID``.
    """

    proc: Path = Path("/proc")
    _known: dict[int, tuple[str | None, float]] = field(default_factory=dict)

    def place(self, pid: int, now: float) -> str | None:
        """Return a pod's UID, ``NODE``, or ``None`` when nobody can say (any more).

        Args:
            pid: the process, in the node's own numbers.
            now: a monotonic clock, seconds.
        """
        self._known = {p: known for p, known in self._known.items() if known[1] > now}
        try:
            text = (self.proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it ended, or this agent may not see it
            return self._known.get(pid, (None, 0.0))[0]
        found = pod_of(text)
        self._known[pid] = (found, now + _REMEMBERED)
        return found
