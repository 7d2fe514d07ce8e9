"""Whatever stands in a field of the policy document: it is refused with its line, or it works.

Works means: it is written and read again as the same, and a site can be planned under it.
"""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.planner import plan
from tests.helpers import draws
from tests.policy.build import active, busy, cards, idle, request, seen, snapshot

WHOLE: dict[str, Any] = {
    "default_class": "t4",
    "pools": {
        "cards": {"evidence": "process", "spare": 1},
        "tenths": {"evidence": "cells", "parts": 10},
    },
    "classes": {
        "t4": {
            "pool": "cards", "title": "T4", "memory": "16GiB", "max_count": 4, "price": 2,
            "time_outs": {"idle": "2m", "keeps": 2}, "fallback": ["half"],
        },
        "half": {"pool": "cards", "max_count": 1},
        "part": {"pool": "tenths", "parts": 7, "steps": [4, 2], "pod": {"hami": {}}},
    },
    "time_outs": {"idle": "5m", "quiet": "15m", "warning": "60s", "hard_length": "8h"},
    "limits": {
        "leases_per_server": 2, "leases_per_user": 3, "queue_max": 100, "waiting_per_user": 4,
        "changes_per_minute": 60,
    },
    "click_runs_cells": "all",
    "reservations": {"gpu_hours": 100, "lead": "2m", "grace": "10m", "windows": 5},
    "shares": {"half_life": "7d", "strength": 0.5},
    "projects": {
        "science": {"pools": {"cards": {"guarantee": 2, "limit": 4}}},
        "phys": {
            "parent": "science", "group": "phys", "title": "Physics", "weight": 2,
            "pools": {"cards": {"guarantee": 1, "limit": 3}}, "classes": ["t4"],
            "members": {"weight": 1, "limit": 2}, "people": {"ann": {"weight": 2, "limit": 3}},
            "budget": {
                "gpu_hours": 10, "each": 4, "people": {"ann": 8}, "zone": "Europe/Berlin",
                "at_zero": "borrow", "contact": ["pi@example.org"],
                "from": "2026-01-01", "to": "2026-12-31",
            },
        },
        "others": {"everyone": True, "weight": 0.5},
    },
}  # fmt: skip


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where everything stands."""
    found = [at] if at else []
    if isinstance(tree, dict | list):
        inside = tree.items() if isinstance(tree, dict) else enumerate(tree)
        found += [path for key, value in inside for path in paths(value, (*at, key))]
    return found


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 1, 10**30, 0.0, -0.5, 1e-300, 1e308, float("inf"), float("nan"), "", " ",
         "0", "-1s", "1e9d", "9" * 400, "inf",
         "0s", "1h", "16GiB", "t4", "cards", "phys", "others", "science",
         "ann", "ä\u202e\x07", "a: b", "x" * 2000, "2026-02-30", "2026-12-31", "Europe/Berlin"]
    ),
    st.integers(-10, 10**6),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.text(max_size=3), st.integers(), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=3)), max_size=2),
)  # fmt: skip


@st.composite
def texts(draw: Any) -> str:
    tree = copy.deepcopy(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(paths(tree)))
        node = tree
        for key in above:
            node = node[key]
        what = draw(st.sampled_from(["set", "set", "set", "drop", "add"]))
        if what == "drop":
            del node[last]
        elif what == "add" and isinstance(node, dict):
            node[draw(st.text(max_size=6))] = draw(odd)
        else:
            node[last] = draw(odd)
    return str(yaml.safe_dump(tree, allow_unicode=True))


def site(policy: Any) -> Any:
    leases = [active(n, user="ann", project="phys", server=str(n), pool="cards") for n in range(2)]
    queued = [request(n, project=name) for n, name in ((5, "phys"), (6, "others"), (7, "gone"))]
    evidence = {"r0": busy(), "r1": idle(4000)}
    observed = [seen(each, in_use=True) for each in leases]
    return snapshot([*leases, *queued], cards(3), evidence, observed, policy=policy)


def test_the_document_itself_is_right():
    assert plan(site(document.parse(yaml.safe_dump(WHOLE))))


@settings(max_examples=draws(20), deadline=None)
@given(texts())
def test_a_changed_field_is_refused_or_works(text):
    if document.check(text):
        with pytest.raises(GPULeaseError):
            document.parse(text)
        return
    policy = document.parse(text)
    assert document.parse(document.dump(policy)) == policy
    plan(site(policy))
