"""What other people called things commands no terminal."""

import pytest

from gpulease import cli
from gpulease.terminal import plain, say, table

ODD = "\x1b[31mred\x1b[0m \x9b2J \u202egnp.exe \u2066x\u2069 \u200b\r\x07\x00\ud800\u2028"


def test_nothing_that_a_terminal_would_obey_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"two\n\tlines {ODD}")
    cli._complain(ODD)
    captured = capsys.readouterr()
    for said in (captured.out, captured.err, table([["a", ODD], ["b", "c\nd"]])):
        assert all(each.isprintable() or each in "\n\t" for each in said)
        assert "\\x1b[31mred\\x1b[0m \\x9b2J \\u202egnp.exe" in said
    assert captured.out.startswith("two\n\tlines ")


def test_a_table_stays_one_whatever_stands_in_it() -> None:
    assert table([["a\nb", "c"], ["Zoë\u00a0日本", "d"]]) == "a\\nb    c\nZoë\u00a0日本  d"


def test_what_people_write_is_left_as_it_is() -> None:
    assert plain("Übung “1”, Ελλάδα 😀\u202f%") == "Übung “1”, Ελλάδα 😀\u202f%"
