"""Names of several hubs' people and groups: none is another's, and the hub alone keeps its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.protocol.hub_names import MOST, ONE_HUB, HubNames, is_hub_name, split

FURTHER = frozenset({"lab2", "lab", "x-1"})
ALL = [HubNames(hub, FURTHER) for hub in ("", *sorted(FURTHER))]

#: What may stand in a name, and what the rule is made of.
_PIECES = st.sampled_from(["lab2", "lab", "x-1", "service", "/", "a", "ä", ".", "@", " ", "-"])
TEXTS = st.lists(_PIECES, max_size=6).map("".join)


@given(TEXTS, TEXTS)
def test_no_two_people_of_several_hubs_meet(one: str, other: str) -> None:
    called = [(names.hub, user, names.known(user)) for names in ALL for user in {one, other}]
    kept = [(hub, user, found) for hub, user, found in called if found]
    assert len({found for *_, found in kept}) == len(kept)
    for hub, user, found in kept:
        assert split(found) == (hub, user)


@given(TEXTS, TEXTS)
def test_no_two_groups_of_several_hubs_meet(one: str, other: str) -> None:
    kept = [
        (names, group, found)
        for names in ALL
        for group in {one, other}
        if (found := names.group(group))
    ]
    assert len({found for *_, found in kept}) == len(kept)
    for names, group, found in kept:
        assert [each.hub for each in ALL if each.owns(found)] == [names.hub]
        assert names.local(found) == group
        assert found not in {each.everyone for each in ALL}


def test_all_of_a_hub_are_in_a_group_that_is_none_of_any_hubs() -> None:
    first, lab = HubNames("", FURTHER), HubNames("lab2", FURTHER)
    assert first.groups(["cs101", "lab2/cs101", "lab2/", "/", "dept/cs"]) == (
        "/", "cs101", "dept/cs",
    )  # fmt: skip
    assert lab.groups(["cs101", "", "/"]) == ("lab2/", "lab2//", "lab2/cs101")
    assert [each.owns("lab2/") for each in (first, lab)] == [False, True]
    assert [each.owns("/") for each in (first, lab)] == [True, False]


@given(TEXTS.filter(bool))
def test_a_hub_alone_keeps_every_name(name: str) -> None:
    assert ONE_HUB.user(name) == name
    assert ONE_HUB.groups([name]) == (name,)
    assert ONE_HUB.owns(name)
    assert ONE_HUB.local(name) == name


@pytest.mark.parametrize("name", ["a/b", "/", "lab2/ann", "x" * (MOST - 4)])
def test_who_could_be_another_hubs_or_is_too_long_to_be_kept_is_not_let_in(name: str) -> None:
    assert HubNames("lab2", FURTHER).known(name) == ""
    with pytest.raises(GPULeaseError, match="told from"):
        HubNames("lab2", FURTHER).user(name)


def test_what_the_store_keeps_is_long_enough() -> None:
    assert len(HubNames("lab2", FURTHER).user("x" * (MOST - 5))) == MOST


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("lab2", True), ("l", True), ("a-b", True), ("l" * 32, True), ("", False),
        ("service", False), ("Lab", False), ("2lab", False), ("lab-", False), ("a/b", False),
        ("a.b", False), ("l" * 33, False), ("lab2\n", False),
    ],
)  # fmt: skip
def test_what_a_hub_may_be_called(name: str, good: bool) -> None:
    assert is_hub_name(name) is good


def test_a_service_is_of_no_hub() -> None:
    assert split("service/lab2") == ("", "service/lab2")
    assert split("lab2/service/x") == ("lab2", "service/x")
