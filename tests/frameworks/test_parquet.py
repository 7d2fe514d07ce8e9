"""Use as Parquet: what was written is read back with its types."""

from datetime import date

import pytest

from gpulease.usage_command import _pyarrow, _write_parquet

pyarrow = pytest.importorskip("pyarrow")
ROW = {"day": "2026-03-02", "person": "=ann", "hours": 1.5, "gpu_hours": 3.0, "estimated": True}


def test_what_was_written_is_read_back_with_its_types(tmp_path):
    from pyarrow import parquet

    file = tmp_path / "use.parquet"
    _write_parquet(_pyarrow(), file, list(ROW), [ROW])
    found = parquet.read_table(file)
    assert found.to_pylist() == [{**ROW, "day": date(2026, 3, 2)}]
    assert [str(each.type) for each in found.schema] == (
        ["date32[day]", "string", "double", "double", "bool"]
    )


def test_no_use_is_a_table_without_rows(tmp_path):
    from pyarrow import parquet

    _write_parquet(_pyarrow(), tmp_path / "none.parquet", list(ROW), [])
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0
