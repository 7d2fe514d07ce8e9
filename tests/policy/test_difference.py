"""A dry run says in words what another document would change."""

import pytest

from gpulease.policy import document
from gpulease.policy.document.difference import differences

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
        (", old: {}", "", "take pool old away"),
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
