"""What all pods of one lease together show."""

from types import SimpleNamespace

import pytest

from gpulease.providers.base import LinkState
from gpulease.providers.kubernetes.observed.index import PodIndex
from gpulease.providers.kubernetes.observed.pods import slots_of
from gpulease.providers.kubernetes.observed.reasons import Reading
from gpulease.providers.kubernetes.starts.held import Attempt, Looks, behind
from gpulease.providers.kubernetes.starts.starts import Start
from tests.providers.kubernetes.objects import INSTANCE, lease_pod
from tests.providers.kubernetes.server_pods import lease

CONNECTED = LinkState(2, connected=True)


class Place:
    """A cluster with the pods of one lease on two nodes."""

    def __init__(self, readings=None, **phases):
        self.lease = lease(count=2, nodes=2, devices=("a/gpu/0", "b/gpu/0"))
        self.held = Attempt(Start(self.lease))
        self.index, self.readings = PodIndex(INSTANCE), readings or {}
        self.group = {
            rank: lease_pod(
                self.lease.id, attempt=2, count=2, nodes=2, rank=rank, node="ab"[rank],
                phase=phases.get(f"rank{rank}", "Running"),
            )
            for rank in range(2)
        }  # fmt: skip
        for pod in self.group.values():
            self.index.change(None, pod)

    def look(self, link=CONNECTED):
        parts = slots_of(self.lease)
        bound = {part: slots for part, slots in parts.items() if part.rank in self.group}
        looks = Looks(SimpleNamespace(pods=self.index), SimpleNamespace(held=bound), self)
        return looks.look(self.held, self.group, link)

    def read(self, _start, pod):
        """Stand in for the start reader."""
        rank = 0 if pod is self.group.get(0) else 1
        return self.readings.get(rank, Reading("connecting"))


def test_all_of_it_is_there():
    seen = Place().look()
    assert seen.connected
    assert not seen.gone
    assert seen.devices == ("a/gpu/0", "b/gpu/0")


@pytest.mark.parametrize("rank", [0, 1])
def test_one_pod_that_goes_or_ends_is_the_end_of_all(rank):
    place = Place()
    place.look()
    del place.group[rank]
    seen = place.look()
    assert seen.gone
    assert seen.devices == ()
    over = Place({rank: Reading(failed="evicted")}, **{f"rank{rank}": "Failed"}).look()
    assert (over.gone, over.connected, over.failed) == (True, False, "evicted")


def test_a_pod_that_is_not_shown_yet_is_not_gone():
    place = Place()
    missing = place.group.pop(1)
    assert not place.look(None).gone
    assert place.look(None).devices == ()
    place.group[1] = missing
    assert place.look().devices == ("a/gpu/0", "b/gpu/0")


@pytest.mark.parametrize(
    ("readings", "shown"),
    [
        ([Reading("connecting"), Reading("pulling")], "pulling"),
        ([Reading("scheduling"), Reading("starting_container")], "scheduling"),
        ([Reading("connecting"), Reading("connecting")], "connecting"),
        ([Reading("starting"), Reading(failed="image_error")], "image_error"),
        ([Reading(failed="capacity_taken"), Reading("connecting")], "capacity_taken"),
    ],
)
def test_a_start_is_no_further_than_its_last_pod_and_fails_with_any(readings, shown):
    found = behind(readings)
    assert shown in (found.stage, found.failed)
    assert bool(found.failed) == (shown not in {each.stage for each in readings})
    seen = Place(dict(enumerate(readings))).look(None)
    assert (seen.stage, seen.failed) == (found.stage, found.failed)
