"""What is killed in a round, when, and after which delay it runs again: all from one seed."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testcluster.layout import Layout
from testcluster.site.site import PROCESSES, Site

COMPANION = "companion"
#: All that a round may kill.  The kubelet's delay stays below the node's own bound for NotReady.
TARGETS = ("service", "agent", COMPANION, "hub", "kube-apiserver", "kubelet")


@dataclass(frozen=True)
class Fault:
    """One kill: `moment` seconds after the students' cells were sent, `delay` until the restart."""

    target: str
    moment: float
    delay: float

    def __str__(self) -> str:
        return f"kill -9 {self.target} after {self.moment:.2f} s, again after {self.delay:.2f} s"


def plan(seed: int, rounds: int) -> list[Fault]:
    """Return the faults of a run; each target comes equally often, in a random order."""
    dice = random.Random(seed)
    targets: list[str] = []
    while len(targets) < rounds:
        targets += dice.sample(TARGETS, len(TARGETS))
    return [
        Fault(target, dice.uniform(0.0, 6.0), dice.uniform(0.5, 6.0)) for target in targets[:rounds]
    ]


async def strike(site: Site, fault: Fault) -> str:
    """Kill at the fault's moment and start again after its delay; return what was hit."""
    await asyncio.sleep(fault.moment)
    hit = await asyncio.to_thread(kill, site, fault)
    await asyncio.sleep(fault.delay)
    await asyncio.to_thread(restart, site, fault)
    return hit


def kill(site: Site, fault: Fault) -> str:
    """Kill the target; return what was hit, in words."""
    if fault.target == COMPANION:
        return _kill_companion(site.cluster.layout, random.Random(fault.moment))
    if fault.target in PROCESSES:
        site.kill(fault.target)
    else:
        site.cluster.kill(fault.target)
    return fault.target


def restart(site: Site, fault: Fault) -> None:
    """Start the target again; companions come again by themselves."""
    if fault.target in PROCESSES:
        site.start(fault.target)
    elif fault.target != COMPANION:
        site.cluster.start(fault.target)
        site.cluster.wait_for_api()


def _kill_companion(layout: Layout, dice: random.Random) -> str:
    found = sorted(companions(layout))
    if not found:
        return "no companion (none was there)"
    pid = dice.choice(found)
    words = _words(pid)
    os.kill(pid, signal.SIGKILL)
    return f"companion process {' '.join(words[:5])}"


def companions(layout: Layout) -> Iterator[int]:
    """Yield the processes of lease pods: supervisors and companion kernels."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and _is_in_cluster(directory, layout):
            pid = int(directory.name)
            if any(word.startswith("gpulease.companion") for word in _words(pid)):
                yield pid


def _is_in_cluster(directory: Path, layout: Layout) -> bool:
    try:
        return f"/{layout.control_group}/" in (directory / "cgroup").read_text(encoding="utf-8")
    except OSError:  # it has just ended
        return False


def _words(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [word for word in text.split("\0") if word]
