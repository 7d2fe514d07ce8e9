"""The tables of pods say after any changes what a look at every pod would say."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import Manifest
from gpulease.providers.kubernetes.api.watch import Key, key_of
from gpulease.providers.kubernetes.observed import pods
from gpulease.providers.kubernetes.observed.index import PodIndex

INSTANCE = "here"
NAMES = ["a", "b", "c"]
USERS = ["ann", "bob"]
LEASES = ["l1", "l2"]


def lease(lease_id: str, attempt: int, rank: int) -> Manifest:
    marks = {
        labels.LEASE: lease_id,
        labels.ATTEMPT: str(attempt),
        **({labels.RANK: str(rank)} if rank else {}),
        labels.INSTANCE: INSTANCE,
        labels.COMPONENT: labels.LEASE_COMPONENT,
    }
    name = labels.lease_pod_name(lease_id, attempt, rank)  # no two pods are of one node
    return _pod(name, labels=marks, annotations={labels.LEASE: lease_id, labels.USER: "ann"})


def server(name: str, user: str) -> Manifest:
    return _pod(name, annotations={labels.USER: user, labels.SERVER: ""})


def other(name: str, cards: int) -> Manifest:
    made = _pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(cards)}}
    return made


def _pod(name: str, **meta: Any) -> Manifest:
    spec: dict[str, Any] = {"containers": [{"name": "main"}]}
    return {"metadata": {"name": name, "namespace": "hub", **meta}, "spec": spec}


changes = st.one_of(
    st.builds(lease, st.sampled_from(LEASES), st.integers(1, 2), st.integers(0, 1)),
    st.builds(server, st.sampled_from(NAMES), st.sampled_from(USERS)),
    st.builds(other, st.sampled_from(NAMES), st.integers(0, 2)),
    st.sampled_from(  # the pod of this name goes
        [
            *NAMES,
            *(labels.lease_pod_name(each, n, k) for each in LEASES for n in (1, 2) for k in (0, 1)),
        ]
    ),
)


@given(st.lists(changes, max_size=12))
def test_the_tables_are_in_step_with_the_pods(steps: list[Manifest | str]) -> None:
    index, there = PodIndex(INSTANCE), dict[Key, Manifest]()
    for number, step in enumerate(steps):
        key = ("hub", step) if isinstance(step, str) else key_of(step)
        before, after = there.pop(key, None), None if isinstance(step, str) else step
        if after is not None:
            after["metadata"]["uid"] = f"uid-{number}"
            there[key] = after
        index.change(before, after)

    uses = [pods.use_of(each, INSTANCE) for each in there.values()]
    assert sorted(index.uses, key=repr) == sorted((u for u in uses if u.asks or u.lease), key=repr)
    assert {
        (name, n, rank)
        for name, tries in index.leases.items()
        for n, group in tries.items()
        for rank in group
    } == {use.part for use in uses if use.lease}
    assert all(index.leases.values()), "no empty entry stays"
    assert all(group for tries in index.leases.values() for group in tries.values())
    for user in USERS:
        mine = [x for x in there.values() if pods.server_of(x, INSTANCE) == (user, "")]
        assert sorted(index.servers(user, ""), key=repr) == sorted(mine, key=repr)
    known = {str(each["metadata"]["uid"]) for each in there.values()}
    assert {f"uid-{n}" for n in range(len(steps)) if index.has(f"uid-{n}")} == known
