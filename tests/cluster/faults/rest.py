"""What must hold at any time, and what must hold once a site is at rest."""

import asyncio
import time
from collections import Counter

from gpulease import labels
from gpulease.errors import GPULeaseError
from tests.cluster.api import ApiError, Object
from tests.cluster.site.people import Student
from tests.cluster.site.site import Site

REST_SECONDS = 60.0
CARDS = 4


class Watchman:
    """Looks at the cluster all the time and writes down what must never be."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.wrong: list[str] = []
        self.looks = 0

    def take(self) -> list[str]:
        """Return what was wrong since the last call, each once."""
        found, self.wrong = list(dict.fromkeys(self.wrong)), []
        return found

    async def watch(self) -> None:
        """Look until cancelled; an API server that is away is looked at later."""
        while True:
            try:
                pods = await asyncio.to_thread(self._site.lease_pods)
            except (OSError, ApiError):
                pods = []
            self._look(pods)
            await asyncio.sleep(0.5)

    def _look(self, pods: list[Object]) -> None:
        self.looks += 1
        living = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        if len(living) > CARDS:
            self.wrong.append(f"{len(living)} GPU pods run on {CARDS} cards")
        leases = Counter(pod["metadata"]["labels"][labels.LEASE] for pod in living)
        for lease, number in leases.items():
            ending = [p for p in living if p["metadata"].get("deletionTimestamp")]
            if number - len(ending) > 1:
                self.wrong.append(f"lease {lease} has {number} pods")


async def settle(site: Site, student: Student) -> tuple[float, str]:
    """Wait until nothing is leased and no GPU pod is left.

    Returns the seconds it took, and what was not at rest in time ("" when all is).
    """
    began = time.monotonic()
    left = "nothing was seen"
    while time.monotonic() - began < REST_SECONDS:
        try:
            live = (await student.browser.service_api("GET", "leases?state=live"))["items"]
            pods = await asyncio.to_thread(site.lease_pods)
        except (GPULeaseError, OSError, ApiError) as error:
            left = f"no answer: {error}"
        else:
            states = [f"{lease['id']} {lease['state']}" for lease in live]
            left = "; ".join([*states, *(pod["metadata"]["name"] for pod in pods)])
            if not left:
                return time.monotonic() - began, ""
        await asyncio.sleep(0.5)
    return time.monotonic() - began, left
