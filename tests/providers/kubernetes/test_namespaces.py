"""Which hub's servers run in a namespace, and that no namespace is two hubs'."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.protocol import labels
from gpulease.providers.kubernetes.api.client import hub_of, may_meet
from gpulease.providers.kubernetes.observed.cluster import Cluster

HUBS = {"lab2": ("lab2", "lab2-*"), "x": ("x",)}
_pieces = st.sampled_from(["a", "b", "-", "*", "?", "[ab]", "[", "lab"])
patterns = st.lists(_pieces, min_size=1, max_size=4).map("".join)
names = st.text("ablo-", min_size=1, max_size=6)


@given(patterns, patterns, names)
def test_what_both_mean_may_meet(one: str, other: str, name: str) -> None:
    if fnmatchcase(name, one) and fnmatchcase(name, other):
        assert may_meet(one, other)
        assert may_meet(other, one)
    assert may_meet(one, name) >= fnmatchcase(name, one)


def test_what_begins_otherwise_never_meets() -> None:
    assert not may_meet("lab2", "lab")
    assert not may_meet("lab-*", "home-*")
    assert not may_meet("lab-*", "lab")
    assert may_meet("lab*", "lab2-*")


@pytest.mark.parametrize(
    ("namespace", "hub"),
    [("hub", ""), ("lab2", "lab2"), ("lab2-ann", "lab2"), ("x", "x"), ("xy", "")],
)
def test_a_namespace_is_of_one_hub(namespace: str, hub: str) -> None:
    assert hub_of(namespace, HUBS) == hub


def pod(namespace: str, user: str) -> dict[str, Any]:
    meta = {"name": "s", "namespace": namespace, "uid": f"{namespace}-{user}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {labels.USER: user, labels.SERVER: ""}}  # fmt: skip
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}}


def cluster(**more: Any) -> Cluster:
    nobody: Any = object()
    return Cluster(nobody, "here", ["hub", "lab2", "lab2-*", "x"], **more)


def test_the_pod_of_a_server_is_in_its_own_hubs_namespaces() -> None:
    found = cluster(hubs=HUBS)
    for where in ("lab2", "x", "elsewhere"):
        found._pod_changed(None, pod(where, "stu"))
    found._pod_changed(None, pod("lab2-ann", "ann"))

    def uid(user: str) -> str:
        manifest = found.server_pod(user, "")
        return "" if manifest is None else str(manifest["metadata"]["uid"])

    assert (uid("stu"), uid("lab2/stu"), uid("x/stu")) == ("", "lab2-stu", "x-stu")
    assert (uid("ann"), uid("lab2/ann"), uid("x/ann")) == ("", "lab2-ann-ann", "")
    found._pod_changed(None, pod("hub", "stu"))
    assert (uid("stu"), uid("lab2/stu"), uid("gone/stu")) == ("hub-stu", "lab2-stu", "")
    # Who may write annotations in one hub's namespace is no user of another's.
    found._pod_changed(None, pod("x", "lab2/eve"))
    found._pod_changed(None, pod("hub", "lab2/eve"))
    assert (uid("lab2/eve"), uid("x/eve")) == ("", "")


def test_a_hub_alone_has_all_namespaces() -> None:
    found = cluster()
    found._pod_changed(None, pod("lab2", "a/b"))
    assert found.server_pod("a/b", "") is not None
    assert found.may_hold("a/b", "lab2")
    assert not found.may_hold("a/b", "elsewhere")
