"""Which Python and packages the images of GPU classes have, and whether a notebook fits them.

Owns what is remembered of an image and for how long, and whom it is believed: a supervisor runs
beside a person's own code, so what one person's says refuses nobody else.  A request that could
not run its cells is refused before it waits for a GPU.  Refuses to know what travels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpulease.companion.handshake import check_packages, python_mismatch, same_minor
from gpulease.policy import queue
from gpulease.policy.calendar.reservation import Window
from gpulease.policy.model import GPUClass, Lease, PolicyDocument
from gpulease.policy.reservations.seats import in_hold
from gpulease.protocol.asks import Environment
from gpulease.protocol.reports import FromSupervisor
from gpulease.service.hubs.auth import Asker

#: For so long an image is what it was: the same name may mean a newer one after that.
REMEMBERED = timedelta(days=1)
#: Images that are remembered, and people whose word about one is.
IMAGES, PEOPLE = 100, 20
#: A version, as others' notebooks may show it.
_PLAIN = re.compile(r"[0-9A-Za-z.+!_-]{1,64}")


@dataclass(frozen=True)
class Report:
    """What somebody's supervisor said of its image when it started."""

    user: str
    at: datetime
    found: Environment


def differences(
    user: str, gpu_class: str, notebook: Environment, reports: Sequence[Report]
) -> list[str]:
    """Return a sentence for each way in which a class's image differs from a notebook's.

    Args:
        reports: of the class's image, at most one of each person, the newest last.

    Raises:
        GPULeaseError: ``python_mismatch``: the notebook's code cannot load there.  That is certain
            where the notebook's interpreter stands in the image by the same path, and the person's
            own lease or those of two others said so and nobody the contrary.
    """
    if not reports:
        return []
    found = reports[-1].found
    said = check_packages(home=notebook["packages"], away=found["packages"])
    if same_minor(notebook["python"], found["python"]):
        return said
    other = ".".join(found["python"].split(".")[:2])
    step = f"Use a server image or a kernel with Python {other}, or another class than {gpu_class}."
    same_place = [each for each in reports if each.found["executable"] == notebook["executable"]]
    agreed = not any(same_minor(notebook["python"], each.found["python"]) for each in reports)
    believed = len(same_place) >= 2 or any(each.user == user for each in same_place)
    if agreed and believed:
        raise python_mismatch(home=notebook["python"], away=found["python"], next_step=step)
    warning = (
        f"This notebook runs Python {notebook['python']}, and GPUs of class {gpu_class} ran Python "
        f"{found['python']} last: its cells may not run there. {step}"
    )
    return [warning, *said]


class Environments:
    """What is known of images now.

    Args:
        image: as the provider's.
        policy: returns the policy in force.
        windows: returns the windows of reservations at an instant.
        clock: the time, UTC.
    """

    def __init__(
        self,
        image: Callable[[GPUClass, str], str],
        policy: Callable[[], PolicyDocument],
        windows: Callable[[datetime], Sequence[Window]],
        clock: Callable[[], datetime],
    ) -> None:
        self._image = image
        self._policy = policy
        self._windows = windows
        self._clock = clock
        self._known: dict[str, dict[str, Report]] = {}

    def seen(self, lease: Lease, hello: FromSupervisor) -> None:
        """Take the first word of a lease's supervisor, said before any code of its user ran."""
        image = self._image_of(lease.gpu_class, lease.image)
        python, executable = hello.get("python", ""), hello.get("executable", "")
        if not image or not executable or not _PLAIN.fullmatch(python):
            return
        reports = self._known.pop(image, {})
        reports.pop(lease.user, None)
        packages = hello.get("packages", {}).items()
        plain = {name: version for name, version in packages if _PLAIN.fullmatch(version)}
        found = Environment(python=python, executable=executable, packages=plain)
        reports[lease.user] = Report(lease.user, self._clock(), found)
        self._known[image] = dict(list(reports.items())[-PEOPLE:])
        while len(self._known) > IMAGES:
            self._known.pop(next(iter(self._known)))

    def check(self, asker: Asker, gpu_class: str | None, notebook: Environment | None) -> list[str]:
        """Return how the image that would be theirs differs from the notebook that asks.

        Raises:
            GPULeaseError: ``python_mismatch``, as ``differences`` does.
        """
        name = gpu_class or self._policy().default_class
        image = self._image_of(name, self._course(asker, name))
        if notebook is None or not image:
            return []
        since = self._clock() - REMEMBERED
        reports = [each for each in self._known.get(image, {}).values() if each.at >= since]
        return differences(asker.name, name, notebook, reports)

    def _course(self, asker: Asker, gpu_class: str) -> str:
        """Return the image of the course on whose seat they would sit."""
        now = self._clock()
        for window in in_hold(self._windows(now), now):
            if window.of.gpu_class == gpu_class and window.entitles(asker.name, asker.groups):
                return self._policy().reservations.of_group(window.of.group).image
        return ""

    def _image_of(self, gpu_class: str, course: str) -> str:
        known = queue.class_of(self._policy(), gpu_class)
        return self._image(known, course) if known is not None else ""
