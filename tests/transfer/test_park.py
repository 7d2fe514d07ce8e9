"""The file of what could not go home: written part by part, read as a whole."""

import time
import tracemalloc

import pytest

from gpulease.errors import GPULeaseError
from gpulease.transfer.switch.park import read_parked, write_parked
from gpulease.transfer.values.side import Side
from gpulease.transfer_next.api import TransferSettings

SIZE = 2**22


def side(values):
    return Side("a", dict(values), (), TransferSettings())


def park(values, path, **options):
    return write_parked(side(values), sorted(values), str(path), time.monotonic() + 60, **options)


def test_parking_takes_the_memory_of_one_value_and_not_of_all(tmp_path):
    values = {f"v{n}": bytearray([n]) * SIZE for n in range(16)}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert park(values, tmp_path / "parked") == ([], [])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 6 * SIZE
    assert (tmp_path / "parked").stat().st_mode & 0o777 == 0o600


def test_what_was_parked_part_by_part_is_one_whole_with_its_aliases(tmp_path):
    shared = [1, 2]
    values = {"a": shared, "b": {"in": shared}, "c": bytearray(SIZE), "f": lambda: None}
    values["g"] = [values["f"]]
    park(values, tmp_path / "parked")
    other = Side("a", {}, (), TransferSettings())
    assert other.receive(read_parked(str(tmp_path / "parked"))).ok
    assert other.ns["b"]["in"] is other.ns["a"]
    assert other.ns["g"][0] is other.ns["f"]
    assert other.ns["c"] == bytearray(SIZE)


def test_what_is_past_the_limit_is_named_and_the_rest_is_there(tmp_path):
    values = {"a": bytearray(SIZE), "b": bytearray(SIZE), "c": 5}
    left, blockers = park(values, tmp_path / "parked", limit=SIZE + 1000)
    assert not left
    assert [name for name, _ in blockers] == ["b"]
    assert {r for g in read_parked(str(tmp_path / "parked")).groups for r in g.roots} == {
        "n:a",
        "n:c",
    }


def test_a_file_that_ends_early_is_refused(tmp_path):
    park({"a": bytearray(SIZE), "b": bytearray(SIZE)}, tmp_path / "parked")
    data = (tmp_path / "parked").read_bytes()
    for end in (3, 20, SIZE // 2, len(data) - 1):
        (tmp_path / "parked").write_bytes(data[:end])
        with pytest.raises(GPULeaseError, match="cannot be read"):
            read_parked(str(tmp_path / "parked"))
