"""The policy document: what is read, what is refused and where, and the way back to text."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.policy.catalog import BOUNDED_BY
from gpulease.policy.document import check, default_document, dump, form, parse, with_time_outs
from gpulease.policy.model import Device, DevicesBy, EvidenceLevel, TimeOuts
from tests.policy.build import NOW

GOOD = """\
default_class: t4
pools:
  cards: {evidence: process}
  slices:
    evidence: cells
classes:
  t4:
    pool: cards
    title: NVIDIA T4
    memory: 16GiB
    max_count: 2
    price: 0.5
    devices_by: index
    time_outs:
      idle: 3m
  slice: {pool: slices}
time_outs:
  idle: 5m
  quiet: 1h30m
  warning: 90s
  keeps: 1
limits:
  leases_per_user: 3
click_runs_cells: none
"""


def test_a_good_document():
    document = parse(GOOD, 7)
    assert check(GOOD) == []
    assert document.version == 7
    assert [pool.evidence for pool in document.pools] == [
        EvidenceLevel.PROCESS,
        EvidenceLevel.CELLS,
    ]
    t4, small = document.classes
    assert (t4.memory, t4.max_count, t4.price, t4.title) == (16 * 2**30, 2, 0.5, "NVIDIA T4")
    assert document.time_outs == TimeOuts(idle=300, quiet=5400, warning=90, keeps=1)
    assert (t4.devices_by, small.devices_by) == (DevicesBy.INDEX, DevicesBy.UUID)
    assert t4.time_outs == replace(document.time_outs, idle=180)
    assert small.time_outs == document.time_outs
    assert small.title == "slice"
    assert (document.leases_per_user, document.leases_per_server) == (3, 1)
    assert document.click_runs_cells == "none"


def test_a_text_that_is_read_again_has_the_version_it_is_given():
    first, second = parse(GOOD, 1), parse(GOOD, 2)
    assert (first.version, second.version) == (1, 2)
    assert replace(second, version=1) == first
    found = check("pools:\n")
    found.clear()  # is the caller's own
    assert check("pools:\n")


def test_the_least_document():
    document = parse("pools:\n  a:\nclasses:\n  b: {pool: a}\n")
    assert document.default_class == "b"
    assert document.time_outs == TimeOuts()


LEAST = "pools: {a: }\nclasses: {b: {pool: a}}\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("", 1, 1, "empty"),
        ("- a\n", 1, 1, "not a mapping"),
        ("pools: [\n", 2, 1, "not YAML"),
        ("a: b: c\n", 1, 5, "not YAML"),
        (LEAST + "pols: 1\n", 3, 1, "no key 'pols'"),
        (LEAST + "pools: {c: }\n", 3, 1, "twice"),
        (LEAST + "default_class: c\n", 3, 16, "'c' is not known"),
        (LEAST + "click_runs_cells: maybe\n", 3, 19, "'maybe' is not known here"),
        (LEAST + "time_outs: 5m\n", 3, 12, "must be a mapping"),
        (LEAST + "time_outs:\n  idel: 5m\n", 4, 3, "no key 'idel'"),
        (LEAST + "time_outs:\n  idle: soon\n", 4, 9, "not a duration"),
        (LEAST + "time_outs:\n  idle: -5\n", 4, 9, "below zero"),
        (LEAST + "time_outs:\n  idle: 0\n", 4, 9, "more than 0"),
        (LEAST + "time_outs:\n  idle: [1]\n", 4, 9, "single value"),
        (LEAST + "time_outs:\n  idle:\n", 4, 8, "single value"),
        (LEAST + "time_outs:\n  idle: .nan\n", 4, 9, "not a duration"),
        (LEAST + "time_outs:\n  idle: inf\n", 4, 9, "not a duration"),
        (LEAST + "time_outs:\n  keeps: 1.5\n", 4, 10, "whole number"),
        (LEAST + "time_outs: {hard_length: 30s}\n", 3, 13, "shorter than the warning"),
        (LEAST + "limits:\n  leases_per_user: 0\n", 4, 20, "at least 1"),
        (LEAST + "limits: {queue_max: many}\n", 3, 21, "whole number"),
        ("pools: {a: }\nclasses: {b: {pool: c}}\n", 2, 21, "'c' is not known"),
        ("pools: {a: }\nclasses: {b: {}}\n", 2, 11, "lacks the key 'pool'"),
        ("pools: {a: }\nclasses: {b: {pool: a, memory: 3 apples}}\n", 2, 32, "not a size"),
        ("pools: {a: }\nclasses: {b: {pool: a, price: -1}}\n", 2, 31, "0 or more"),
        ("pools: {a: }\nclasses: {b c: {pool: a}}\n", 2, 11, "not a valid name"),
        ("pools: {a: {evidence: guess}}\nclasses: {b: {pool: a}}\n", 1, 23, "'guess'"),
        ("pools: &x {a: }\nclasses: *x\n", 2, 10, "aliases"),
        ("? [a]\n: b\n", 1, 3, "must be a name"),
        (LEAST + "default_class: |\n  a\n  b\n", 3, 16, "one line"),
    ],
)
def test_mistakes_are_named_with_their_place(text, line, column, part):
    findings = check(text)
    assert any((f.line, f.column) == (line, column) and part in f.message for f in findings), (
        findings
    )
    assert all(f.next_step for f in findings)
    with pytest.raises(GPULeaseError) as refused:
        parse(text, 1)
    assert refused.value.reason == "bad_policy"
    assert refused.value.numbers["findings"][0]["line"] == findings[0].line


def test_a_suggestion_is_made():
    (finding,) = check(LEAST + "time_outs: {idel: 5m}\n")
    assert finding.next_step == "Did you mean 'idle'?"


def test_everything_wrong_is_found_in_one_pass():
    text = "pools: {a: {x: 1}}\nclasses: {b: {pool: q}}\ntime_outs: {idle: x}\nfoo: 1\n"
    assert [finding.line for finding in check(text)] == [1, 2, 3, 4]


def test_a_very_long_and_a_very_deep_text_are_refused():
    assert "too long" in check("a" * 2_000_000)[0].message
    assert "too deep" in check("[" * 50_000)[0].message
    assert "too deep" in check("{a: " * 5_000)[0].message
    assert "not YAML" in check("\x00\x07")[0].message


def test_dump_reads_back():
    document = parse(GOOD, 7)
    assert parse(dump(document), 7) == document


outs = st.builds(
    TimeOuts,
    idle=st.integers(1, 100_000).map(float),
    quiet=st.floats(1, 1e5, allow_nan=False).map(lambda x: round(x, 2)),
    warning=st.integers(0, 3600).map(float),
    keeps=st.integers(0, 9),
)


@given(outs, outs, st.integers(0, 2**40), st.text(max_size=50), st.sampled_from(DevicesBy))
def test_what_is_dumped_is_read_back(own, general, memory, title, named):
    if not title or "\n" in title or not title.isprintable():
        title = "x"
    base = default_document([Device("a", "cards")], general)
    own_members = {"time_outs": own, "memory": memory, "title": title, "devices_by": named}
    changed = replace(base.classes[0], **own_members)
    document = replace(base, classes=(changed,))
    assert parse(dump(document), 1) == document


def test_the_default_document_has_a_class_for_each_pool():
    devices = [Device("b", "x", "Big", 2**30), Device("a", "x", "Alike"), Device("c", "y", "Sea")]
    document = default_document(devices, TimeOuts(idle=60))
    assert [(c.name, c.title) for c in document.classes] == [("x", "Alike"), ("y", "Sea")]
    assert document.time_outs.idle == document.classes[0].time_outs.idle == 60
    assert check(dump(document)) == []


def test_the_default_document_of_a_machine_without_gpus_is_valid_too():
    assert check(dump(default_document([]))) == []


def test_time_outs_are_changed_for_classes_that_do_not_override_them():
    document = with_time_outs(parse(GOOD, 1), idle=60.0, quiet=120.0)
    t4, small = document.classes
    assert (t4.time_outs.idle, t4.time_outs.quiet) == (180, 120)
    assert (small.time_outs.idle, small.time_outs.quiet) == (60, 120)


def only(time_out: str) -> str:
    return GOOD[: GOOD.rindex("time_outs:")] + f"time_outs:\n  {time_out}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("idle: 9999999999d", "idle: it may be at most 7 days: an idle GPU"),
        ("hard_length: 9999999999d", "hard_length: it may be at most 366 days"),
        ("warning: 25h", "warning: it may be at most 1 day: others wait"),
        ("keep: 1e30", "keep:"),
    ],
)
def test_a_duration_that_no_plan_could_reckon_with_is_refused(line, said):
    text = only(line)
    (finding,) = check(text)
    assert finding.message.startswith(said)
    assert finding.level == "error"
    with pytest.raises(GPULeaseError):
        parse(text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"changes_per_minute: 1{'0' * 400}", "changes_per_minute: it may be at most"),
        ("queue_max: 1000000001", "queue_max: it may be at most 1000000000."),
        ("waiting_per_user: 2000000000", "waiting_per_user: it may be at most"),
    ],
)
def test_a_number_that_nothing_can_reckon_with_is_refused(line, said):
    """With the first of them in force, each request of everybody failed."""
    (finding,) = check(GOOD.replace("leases_per_user: 3", line))
    assert finding.message.startswith(said)
    assert finding.level == "error"


@pytest.mark.parametrize("memory", ["1" + "0" * 400, "9" * 400 + "TiB", "2000000TiB"], ids=len)
def test_a_size_that_no_machine_has_is_refused(memory):
    text = re.sub(r"memory: .*", f"memory: {memory}", GOOD, count=1)
    assert text != GOOD
    assert [each.message for each in check(text) if each.message.startswith("memory: ")]


@pytest.mark.parametrize(
    ("length", "said"), [("0s", "without any notice"), ("5h", "held for another 5h")]
)
def test_a_warning_that_is_rather_a_mistake_is_taken_with_a_caution(length, said):
    text = GOOD.replace("warning: 90s", f"warning: {length}")
    (finding,) = check(text)
    assert finding.level == "caution"
    assert said in finding.message
    assert parse(text).time_outs.warning in (0, 5 * 3600)


def test_a_time_out_that_another_bounds_is_said_where_it_is_longer():
    longer = only("idle: 10s\n  idle_under_pressure: 1m")
    (finding,) = check(longer)
    assert (finding.level, finding.next_step) == ("caution", "Write for example 10s.")
    assert check(only("idle: 10s")) == [], "the default is no word of the admin's"
    assert {each.name: each.below for each in form() if each.below} == BOUNDED_BY
    found = default_document([], TimeOuts(idle=10.0))
    assert found.time_outs.idle_under_pressure == 10.0


@pytest.mark.parametrize("name", sorted(TimeOuts.__dataclass_fields__))
def test_every_time_out_can_be_planned_with_at_its_bound(name):
    """The longest that is taken overflows nothing, whatever is planned."""
    bound = "1000000" if name == "keeps" else "366d"
    text = only(f"{name}: {bound}")
    findings = [each for each in check(text) if each.level == "error"]
    if not findings:
        value = getattr(parse(text).time_outs, name)
        assert NOW + timedelta(seconds=value) > NOW
    else:
        assert "at most" in findings[0].message or "shorter" in findings[0].message


def test_the_node_agent_loads_the_nouns_without_what_reads_the_document():
    code = (
        "import sys, gpulease.gpus.agent.command\n"
        "print(*{'pydantic', 'dateutil', 'yaml', 'gpulease.policy.document'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
