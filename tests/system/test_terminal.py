"""What other people called things commands no terminal."""

from contextlib import suppress
from pathlib import Path

import pytest

from gpulease import cli
from gpulease.system.terminal import plain, say, table
from gpulease.verify import command

ODD = "\x1b[31mred\x1b[0m \x9b2J \u202egnp.exe \u2066x\u2069 \u200b\r\x07\x00\ud800\u2028"


def test_nothing_that_a_terminal_would_obey_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"two\n\tlines {ODD}")
    cli._complain(ODD)
    captured = capsys.readouterr()
    for said in (captured.out, captured.err, table([["a", ODD], ["b", "c\nd"]])):
        assert all(each.isprintable() or each in "\n\t" for each in said)
        assert "\\x1b[31mred\\x1b[0m \\x9b2J \\u202egnp.exe" in said
    assert captured.out.startswith("two\n\tlines ")


@pytest.mark.parametrize(
    "words",
    [
        ["support-bundle", "{folder}/{odd}"],
        ["support-bundle", "/no/such/{odd}"],
        ["verify", "{odd}.ipynb"],
        ["verify", "{notebook}", "--pattern", "{odd}"],
        ["demo", "--port", "{odd}"],
        ["admin", "{odd}"],
        ["policy", "check", "x", "{odd}"],
        ["service", "{odd}"],
        ["service", "--{odd}=1"],
        ["{odd}"],
    ],
    ids=" ".join,
)
def test_no_command_echoes_an_argument_that_a_terminal_would_obey(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "\x1b[31m\u202ex\x9b2J"
    with suppress(SystemExit):
        cli.main([word.format(odd=odd, folder=tmp_path, notebook="n.ipynb") for word in words])
    said = "".join(capsys.readouterr())
    assert "\\x1b[31m\\u202ex\\x9b2J" in said
    assert all(each.isprintable() or each == "\n" for each in said)


def test_verify_writes_the_name_of_a_notebook_out(capsys: pytest.CaptureFixture[str]) -> None:
    command._say("\x1b[31m\u202ex.ipynb: 1 code cells")
    assert capsys.readouterr().out == "\\x1b[31m\\u202ex.ipynb: 1 code cells\n"


def test_a_table_stays_one_whatever_stands_in_it() -> None:
    assert table([["a\nb", "c"], ["Zoë\u00a0日本", "d"]]) == "a\\nb    c\nZoë\u00a0日本  d"


def test_what_people_write_is_left_as_it_is() -> None:
    assert plain("Übung “1”, Ελλάδα 😀\u202f%") == "Übung “1”, Ελλάδα 😀\u202f%"
