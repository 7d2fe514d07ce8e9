"""What the fault rounds look for is found where it is: each with a sentence that names it.

These need no cluster: the pictures are made here.
"""

from dataclasses import replace

from gpulease.gpus.agent.wire import ContainerDevice
from testcluster.faults import invariants
from testcluster.faults.picture import Lease, Picture, Pod, books
from testcluster.faults.rest import BOOKS_SECONDS, REST_SECONDS, Watchman

SERVER = Pod("jupyter-dora", "s1", "Running", user="dora")
POD = Pod("gpulease-l1-1", "p1", "Running", gpus=1, lease="l1", attempt=1, owners=("s1",))
CARDS = {"GPU-0": frozenset({"p1"})}
HELD = {"GPU-0": frozenset({"jupyterhub/gpulease-l1-1"})}
LEASE = Lease("l1", "dora", "", "active", "connected")


def picture(*pods: Pod, leases: tuple[Lease, ...] = (LEASE,), **more: object) -> Picture:
    listed = {pod.uid: pod for pod in (SERVER, *pods)}
    return Picture(listed, {lease.id: lease for lease in leases}, **more)  # type: ignore[arg-type]


def test_a_lease_at_work_is_right_and_not_at_rest() -> None:
    seen = picture(POD, grants={"node1/0": "l1"}, cards=CARDS, held=HELD)
    assert (invariants.always(seen), invariants.strays(seen)) == ([], {})
    assert invariants.miscounts(seen) == {}
    assert invariants.at_rest(seen) == [
        "lease l1 of dora (connected) is still active",
        "GPU pod gpulease-l1-1 of lease l1 is still there",
        "device node1/0 is still granted to lease l1",
        "card GPU-0 is still in use by gpulease-l1-1",
        "the kubelet still holds device GPU-0 for jupyterhub/gpulease-l1-1",
    ]


def test_a_site_whose_leases_have_ended_is_at_rest() -> None:
    ended = replace(LEASE, state="ended", why="idle")
    assert invariants.at_rest(picture(leases=(ended,))) == []
    assert invariants.at_rest(picture(leases=(replace(ended, why=""),))) == [
        "lease l1 of dora () ended without a reason"
    ]
    assert invariants.at_rest(replace(picture(leases=()), node_ready=False)) == [
        "the node is not ready"
    ]


def test_a_gpu_pod_without_a_lease_is_named() -> None:
    unknown = invariants.strays(picture(POD, leases=()))
    assert unknown == {
        "pod gpulease-l1-1": "GPU pod gpulease-l1-1 is of lease l1, which the store does not know"
    }
    ended = invariants.strays(picture(POD, leases=(replace(LEASE, state="ended", why="idle"),)))
    assert ended["pod gpulease-l1-1"].endswith("of lease l1 of dora (idle), which has ended")
    alien = invariants.strays(picture(replace(POD, lease="", user="dora")))
    assert alien == {"pod gpulease-l1-1": "GPU pod gpulease-l1-1 is no lease's"}
    assert invariants.strays(picture(replace(POD, ending=True), leases=())) == {}


def test_a_pod_and_a_lease_without_an_owner_are_named() -> None:
    seen = Picture({POD.uid: POD}, {LEASE.id: LEASE})
    assert invariants.strays(seen) == {
        "pod gpulease-l1-1": "lease pod gpulease-l1-1 has no owner: its server's pod is gone",
        "lease l1": "lease l1 of dora (connected) has no owner: no server of the user runs",
    }


def test_a_card_in_two_pods_a_lease_with_two_and_too_many_pods_are_named() -> None:
    second = replace(POD, name="gpulease-l1-2", uid="p2", attempt=2)
    cards = {"GPU-0": frozenset({"p1", "p2"}), "GPU-1": frozenset({"p1", "gone"})}
    assert invariants.always(picture(POD, second, cards=cards)) == [
        "card GPU-0 was given twice: to gpulease-l1-1 and gpulease-l1-2",
        "card GPU-1 was given twice: to gpulease-l1-1 and pod gone",
        "lease l1 has 2 pods: gpulease-l1-1, gpulease-l1-2",
    ]
    many = [replace(POD, name=f"p{n}", uid=f"p{n}", lease=f"l{n}") for n in range(5)]
    assert invariants.always(picture(*many)) == ["5 GPU pods run on 4 cards: p0, p1, p2, p3, p4"]


def test_a_device_that_the_kubelet_gave_twice_is_named() -> None:
    held = books(
        [
            ContainerDevice("jupyterhub", "gpulease-l1-1", "companion", "nvidia.com/gpu", "GPU-0"),
            ContainerDevice("jupyterhub", "gpulease-l1-1", "helper", "nvidia.com/gpu", "GPU-0"),
            ContainerDevice("jupyterhub", "a", "companion", "nvidia.com/gpu.shared", "GPU-4::0"),
            ContainerDevice("jupyterhub", "b", "companion", "nvidia.com/gpu.shared", "GPU-4::1"),
            ContainerDevice(
                "jupyterhub", "c", "companion", "", "gpu-0", "gpu.example.com", "node1"
            ),
            ContainerDevice("other", "c", "companion", "", "gpu-0", "gpu.example.com", "node1"),
        ]
    )
    assert invariants.always(picture(POD, held=held)) == [
        "the kubelet gave device gpu.example.com/node1/gpu-0 twice: to jupyterhub/c and other/c"
    ]


def test_device_accounting_that_was_lost_is_found() -> None:
    """A kubelet that lost its books gives the card away again: found before and after it does."""
    lost = picture(POD, cards=CARDS, held={})
    words = "the kubelet does not account for card GPU-0, which gpulease-l1-1 has"
    assert invariants.miscounts(lost) == {"card GPU-0 of gpulease-l1-1": words}
    second = replace(POD, name="gpulease-l2-1", uid="p2", lease="l2")
    given_away = {"GPU-0": frozenset({"jupyterhub/gpulease-l2-1"})}
    both = picture(POD, second, cards={"GPU-0": frozenset({"p1", "p2"})}, held=given_away)
    assert list(invariants.miscounts(both)) == ["card GPU-0 of gpulease-l1-1"]
    assert "card GPU-0 was given twice: to gpulease-l1-1 and gpulease-l2-1" in invariants.always(
        both
    )
    kept = picture(held=HELD)  # the pod is gone, its card is not free
    assert list(invariants.miscounts(kept).values()) == [
        "the kubelet holds device GPU-0 for jupyterhub/gpulease-l1-1, which is gone"
    ]
    silent = picture(POD, cards=CARDS, held=None)
    assert invariants.miscounts(silent) == {}
    assert "the kubelet does not say who holds which device" in invariants.at_rest(silent)


def test_books_that_differ_are_wrong_once_they_stay() -> None:
    now = [0.0]
    watchman = Watchman(lambda: picture(), clock=lambda: now[0])
    for second, held in ((0.0, {}), (10.0, {}), (14.0, None), (20.0, {}), (35.0, {})):
        now[0] = second
        watchman.see(picture(POD, cards=CARDS, held=held))
    assert watchman.take() == []  # in between, nothing could be said
    now[0] = 20.0 + BOOKS_SECONDS + 0.1
    watchman.see(picture(POD, cards=CARDS, held={}))
    assert watchman.take() == [
        "for over 15 s: the kubelet does not account for card GPU-0, which gpulease-l1-1 has"
    ]
    assert watchman.looks_in_the_books == 0


def test_what_may_be_for_a_moment_is_wrong_once_it_stays() -> None:
    now = [0.0]
    watchman = Watchman(lambda: picture(), clock=lambda: now[0])
    for second in (0, 30, REST_SECONDS):
        now[0] = second
        watchman.see(picture(POD, leases=()))
    assert watchman.take() == []
    watchman.see(picture(POD))  # the lease is known again
    now[0] = 2 * REST_SECONDS
    watchman.see(picture(POD, leases=()))
    assert watchman.take() == []
    now[0] = 3 * REST_SECONDS + 1
    watchman.see(picture(POD, leases=()))
    (found,) = watchman.take()
    assert "which the store does not know" in found
    assert watchman.looks == 6
