"""``gpulease usage`` where it cannot write what is asked."""

import sys

import pytest

from gpulease.cli import main
from gpulease.system.terminal import csv_text


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["usage", "--parquet", str(tmp_path / "use.parquet")]) != 0
    assert "Install gpulease[parquet], or write --csv FILE." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_a_name_that_a_spreadsheet_would_run_is_written_as_text(name):
    assert csv_text(["user", "n"], [[name, -1]]).splitlines()[1].lstrip('"').startswith("'")
    assert csv_text(["n"], [[-1]]).splitlines()[1] == "-1", "numbers are numbers"
