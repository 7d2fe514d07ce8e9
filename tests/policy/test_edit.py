"""Values set in a policy text are read back, and a dry run says what a document would change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.policy import document
from gpulease.policy.document import dump, form, parse
from gpulease.policy.document.edit import differences, with_drained, with_paused, with_time_outs
from gpulease.sizes import format_duration
from tests.helpers import draws

HEAD = "# ours\npools: {a: {}}\nclasses:\n  g: {pool: a}  # the only one\n"
TEXTS = [
    HEAD,
    HEAD + "time_outs:\n",
    HEAD + "time_outs: {}\n",
    HEAD + "time_outs: {idle: 7m}  # a note\n",
    HEAD + "time_outs:\n  # why\n  idle: 7m  # seven\n  warning: 30s\nclick_runs_cells: none\n",
    "{pools: {a: {}}, classes: {g: {pool: a}}}\n",
    "time_outs:\n    idle: 5m\n" + HEAD,
]
VALUES = st.fixed_dictionaries(
    {},
    optional={
        each.name: st.integers(max(1, int(each.least)), 86400).map(float)
        for each in form()
        if not each.counted and each.name not in ("hard_length", "warning")
    },
)


@pytest.mark.parametrize("text", TEXTS)
@given(VALUES)
@settings(max_examples=draws(4))
def test_what_is_set_is_read_back_and_the_rest_stays(text: str, values: dict[str, float]) -> None:
    written = {name: format_duration(seconds) for name, seconds in values.items()}
    changed = with_time_outs(text, written)
    before, after = parse(text), parse(changed)
    for field in form():
        wanted = values.get(field.name, getattr(before.time_outs, field.name))
        assert getattr(after.time_outs, field.name) == wanted
    assert (after.pools, after.click_runs_cells) == (before.pools, before.click_runs_cells)
    for comment in ("# ours", "# the only one", "# why", "# seven", "# a note"):
        assert (comment in changed) == (comment in text)


def test_a_value_is_changed_where_it_stands() -> None:
    text = HEAD + "time_outs:\n  idle: 7m  # seven\n"
    assert with_time_outs(text, {"idle": "9m"}) == text.replace("7m", "9m")


def test_every_default_lies_within_its_bounds() -> None:
    assert all(each.least <= each.default <= each.most for each in form())


POOLS = [
    "pools: {a: {}, b: {spare: 1}}  # ours\n",
    "pools:\n  a: {paused: false}\n  b:\n    # why\n    spare: 1\n",
    "pools:\n  a:\n  b: {spare: 1, paused: true}\n",
]


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("chosen", [(), ("a",), ("b",), ("a", "b")])
@pytest.mark.parametrize("paused", [True, False])
def test_pools_are_paused_and_the_rest_stays(
    pools: str, chosen: tuple[str, ...], paused: bool
) -> None:
    text = f"{pools}classes:\n  g: {{pool: a}}  # the only one\n"
    changed = with_paused(text, chosen, paused)
    before, after = parse(text), parse(changed)
    was = {each.name: each.paused for each in before.pools}
    assert {each.name: each.paused for each in after.pools} == was | dict.fromkeys(chosen, paused)
    assert [each.spare for each in after.pools] == [0, 1]
    assert after.classes == before.classes
    assert [word for word in ("# ours", "# why", "# the only one") if word in text] == [
        word for word in ("# ours", "# why", "# the only one") if word in changed
    ]


@pytest.mark.parametrize("nodes", [(), ("gpu-1",), ("gpu-1", 'a "b": {c}')])
@pytest.mark.parametrize("before", ["", "drained_nodes: [old]\n", "drained_nodes:\n- old\n- x\n"])
def test_nodes_are_drained_and_the_rest_stays(nodes: tuple[str, ...], before: str) -> None:
    text = f"{before}pools: {{a: {{}}}}\nclasses:\n  g: {{pool: a}}  # the only one\n"
    changed = with_drained(text, nodes)
    after = parse(changed)
    assert after.drained_nodes == nodes
    assert after.classes == parse(text).classes
    assert "# the only one" in changed
    assert parse(dump(after)).drained_nodes == nodes


TEXT = """\
pools: {cards: {evidence: process}, old: {}}
classes:
  t4: {pool: cards, memory: 16GiB}
  a100: {pool: cards, time_outs: {idle: 2m}}
time_outs: {idle: 5m, keeps: 3}
limits: {leases_per_user: 2}
"""
BEFORE = document.parse(TEXT, 1)


def changed(old: str, new: str) -> list[str]:
    assert old in TEXT
    return differences(BEFORE, document.parse(TEXT.replace(old, new), 2))


def test_equal_documents_differ_in_nothing():
    assert differences(BEFORE, document.parse(TEXT + "# a remark\n", 2)) == []


def test_a_time_out_is_named_once_and_not_for_classes_that_follow_it():
    assert changed("idle: 5m", "idle: 4m") == ["set idle from 5m to 4m"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("idle: 2m", "idle: 3m", "for class a100: set idle from 2m to 3m"),
        ("keeps: 3", "keeps: 1", "set keeps from 3 to 1"),
        ("leases_per_user: 2", "leases_per_user: 4", "set leases_per_user from 2 to 4"),
        (", old: {}", "", "remove pool old"),
        (", old: {}", ", old: {}, new: {}", "add pool new"),
        (
            "evidence: process",
            "evidence: cells",
            "for pool cards: set evidence from process to cells",
        ),
        (
            "evidence: process",
            "evidence: process, paused: true",
            "for pool cards: set paused from false to true",
        ),
        ("limits:", "drained_nodes: [n1, n2]\nlimits:", "set drained_nodes from none to n1, n2"),
        ("  t4: {", "  v100: {pool: cards}\n  t4: {", "add class v100"),
        ("memory: 16GiB", "memory: 8GiB", "for class t4: set memory from 16GiB to 8GiB"),
        ("t4: {pool: cards", "t4: {pool: old", "for class t4: set pool from cards to old"),
        ("limits:", "click_runs_cells: none\nlimits:", "set click_runs_cells from auto to none"),
    ],
)
def test_each_kind_of_change_is_said(old: str, new: str, said: str):
    assert said in changed(old, new)
