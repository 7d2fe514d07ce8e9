"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.sizes import (
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    say_count,
    say_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300), ("90s", 90), ("1h30m", 5400), ("8h", 28800), ("1d", 86400), ("0.5s", 0.5),
        ("1h 30m", 5400), (" 5m ", 300), ("45", 45), (45, 45), (0.25, 0.25), ("0", 0),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "5x",
        "5m5",
        "m5",
        "-5m",
        "-5",
        "nan",
        "inf",
        "1e400",
        "5 minutes",
        True,
        10**400,
        "9" * 400 + "h",
    ],
)
def test_no_durations(text):
    with pytest.raises(ValueError, match=r"duration|below zero"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 * 2**30), ("1.5 GiB", 3 * 2**29), ("512MB", 512 * 10**6), (7, 7), ("7", 7)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "24G", "24gib", "-1GiB", "1 2", float("nan"), False, 10**400, "9" * 400]
)
def test_no_sizes(text):
    with pytest.raises(ValueError, match=r"size|below zero"):
        parse_size(text)


@given(
    st.integers(0, 10**7)
    | st.integers(0, 400).map(lambda days: days * 86400)
    | st.floats(0.001, 1e4).map(lambda x: float(f"{x:g}"))
)
def test_durations_come_back(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**50))
def test_sizes_come_back(size):
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(("number", "said"), [(0, "0 seats"), (1, "1 seat"), (2, "2 seats")])
def test_a_number_agrees_with_what_it_counts(number, said):
    assert say_count(number, "seat", "seats") == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.5, "0.5 s"), (45, "45 s"), (60, "1 min"), (900, "15 min"), (5400, "1 h 30 min"),
     (28800, "8 h"), (3661, "1 h 1 min 1 s"), (86400, "24 h"), (129600, "36 h"),
     (172800, "2 days"), (176400, "49 h"), (15552000, "180 days")],
)  # fmt: skip
def test_durations_in_sentences(seconds, said):
    assert say_duration(seconds) == said
