"""Traces: bursts become sessions, CSV there and back, and what cannot be read is named by line."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from io import StringIO
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.simulate.trace import (
    MONDAY,
    TRACE,
    Burst,
    Seen,
    Session,
    Trace,
    read_csv,
    sessions_of,
    write_csv,
)

names = st.text("abcdef,\"' é-", min_size=1, max_size=6).map(str.strip).filter(bool)
seconds = st.integers(0, 10_000_000).map(lambda n: n / 1000)


@st.composite
def sessions(draw):
    return Session(
        id=draw(names),
        user=draw(names),
        start=draw(seconds),
        bursts=tuple(
            Burst(think if at else 0.0, busy)
            for at, (think, busy) in enumerate(
                draw(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4))
            )
        ),
        project=draw(st.one_of(st.just(""), names)),
        groups=tuple(draw(st.lists(names, max_size=2))),
        count=draw(st.integers(1, 8)),
        linger=draw(seconds),
        patience=draw(st.one_of(st.just(inf), st.integers(0, 9999).map(float))),
    )


@st.composite
def traces(draw):
    found = draw(st.lists(sessions(), min_size=1, max_size=5, unique_by=lambda each: each.id))
    return Trace(MONDAY, 1e9, tuple(sorted(found, key=lambda each: (each.start, each.id))))


@given(traces())
def test_what_is_written_is_read_again(trace):
    file = StringIO()
    write_csv(trace, file)
    read = read_csv(StringIO(file.getvalue()))
    shift = (read.begin - trace.begin).total_seconds()
    assert len(read.sessions) == len(trace.sessions)
    by_id = {each.id: each for each in read.sessions}
    for was in trace.sessions:
        now = by_id[was.id]
        same = ("user", "project", "groups", "count", "patience")
        assert all(getattr(now, name) == getattr(was, name) for name in same)
        assert now.start + shift == pytest.approx(was.start, abs=0.01)
        assert now.linger == pytest.approx(was.linger, abs=0.01)
        for old, new in zip(was.bursts, now.bursts, strict=True):
            assert new.think == pytest.approx(old.think, abs=0.01)
            assert new.busy == pytest.approx(old.busy, rel=1e-4)


@given(traces())
def test_a_trace_is_the_same_after_json(trace):
    assert (
        TRACE.validate_python(json.loads(json.dumps(TRACE.dump_python(trace, mode="json"))))
        == trace
    )


def test_a_recorded_wait_is_no_time_to_think():
    (session,) = sessions_of([Seen("s", 100, 10, waited=30), Seen("s", 200, 5, until=300)])
    assert session.bursts == (Burst(0, 10), Burst(60, 5))
    assert (session.start, session.linger) == (100, 95)


def test_rows_may_come_in_any_order_and_overlap():
    (session,) = sessions_of([Seen("s", 50, 5), Seen("s", 0, 100)])
    assert session.bursts == (Burst(0, 100), Burst(0, 5))


def test_seconds_need_no_zone():
    trace = read_csv(StringIO("session,start,busy\na,10,5\nb,0,20\n"))
    assert [each.id for each in trace.sessions] == ["b", "a"]
    assert (trace.begin, trace.length) == (MONDAY, 3620)


def test_times_begin_at_midnight_before_the_first():
    trace = read_csv(StringIO("session,start,busy\na,2026-05-04T10:00:00+00:00,5\n"))
    assert trace.begin == datetime(2026, 5, 4, tzinfo=UTC)
    assert trace.sessions[0].start == 36000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("session,start\n", 1),
        ("session,start,busy\n", 1),
        ("session,start,busy,colour\na,1,1,red\n", 1),
        ("session,start,busy\na,1\n", 2),
        ("session,start,busy\na,1,1,1\n", 2),
        ("session,start,busy\na,1,1\nb,x,1\n", 3),
        ("session,start,busy\na,2026-05-04T10:00:00,1\n", 2),
        ("session,start,busy\na,1,-1\n", 2),
        ("session,start,busy\na,1,nan\n", 2),
        ("session,start,busy\na,1,inf\n", 2),
        ("session,start,busy\n,1,1\n", 2),
        ("session,start,busy,count\na,1,1,0\n", 2),
        ("session,start,busy,count\na,1,1,1.5\n", 2),
        ("session,start,busy,count\na,1,1,99999\n", 2),
        ("session,start,busy,until\na,1,1,2026-05-04T10:00:00+00:00\n", 2),
        ("session,start,busy\na,1,1\nb,2026-05-04T10:00:00+00:00,1\n", 1),
        ("session,start,busy,patience\na,1,1,soon\n", 2),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(text, line):
    with pytest.raises(GPULeaseError) as found:
        read_csv(StringIO(text))
    assert found.value.reason == "bad_trace"
    assert found.value.numbers["line"] == line


def test_every_line_that_cannot_be_read_is_named():
    rows = [f"s{n},1,{'x' if n % 2 else 1}\n" for n in range(40)]
    with pytest.raises(GPULeaseError) as found:
        read_csv(StringIO("".join(["session,start,busy\n", *rows])))
    told = found.value.sentence.splitlines()
    assert [line.split()[1] for line in told[:-1]] == [str(3 + 2 * n) for n in range(10)]
    assert told[-1] == "10 more lines cannot be read."


def test_other_separators_are_told():
    with pytest.raises(GPULeaseError, match="separated by commas"):
        read_csv(StringIO("session;start;busy\na;1;1\n"))


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text):
    with suppress(GPULeaseError):
        read_csv(StringIO(text, newline=""))
