import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.providers.kubernetes.api.answers import Lines


@given(st.lists(st.text(alphabet="aä€ {}", min_size=1)), st.lists(st.integers(0, 40)))
def test_lines_come_out_whole_however_they_were_cut(texts, cuts):
    data = "".join(f"{text}\n" for text in texts).encode()
    lines, found = Lines(), []
    for cut in cuts:
        found += lines.feed(data[:cut])
        data = data[cut:]
    found += lines.feed(data)
    assert found == [text for text in texts if text.strip()]


def test_what_follows_the_last_newline_waits():
    lines = Lines()
    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o") == []
    assert lines.feed(b"\n") == ["two"]


def test_a_line_without_end_is_refused():
    lines = Lines(longest=10)
    with pytest.raises(OSError, match="longer"):
        lines.feed(b"x" * 11)


def test_a_line_that_is_no_text_is_refused():
    with pytest.raises(OSError, match="UTF-8"):
        Lines().feed(b"\xff\xfe\n")
