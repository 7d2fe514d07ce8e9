"""The small rules: environments, configuration, handshake, interpreters, the process table."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulease.companion.config import Parking, SupervisorConfig
from gpulease.companion.handshake import check_packages, check_protocol, check_python
from gpulease.companion.processes import same_interpreter
from gpulease.companion.run import visible_devices
from gpulease.errors import GPULeaseError
from gpulease.sides.environment import (
    allowed_environment,
    companion_environment,
    forbidden,
    is_lease_id,
    marked_environment,
)
from gpulease.system.process_table import ProcessRow, descendants, parse_stat


@pytest.mark.parametrize(
    "name",
    ["JUPYTERHUB_API_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "OPENAI_API_KEY",
     "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPULEASE_BUS", "my_token"],
)  # fmt: skip
def test_credentials_and_devices_never_pass(name):
    assert forbidden(name)
    assert name not in allowed_environment({name: "x"})
    assert name not in companion_environment({}, {name: "x"}, "lease", "k", None)


def test_what_a_cell_needs_passes():
    source = {"HOME": "/h", "LC_ALL": "C", "OMP_NUM_THREADS": "2", "CONDA_PREFIX": "/c", "X": "1"}
    assert allowed_environment(source) == {k: v for k, v in source.items() if k != "X"}


def test_the_leases_devices_win_over_everybodys():
    base, home = {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "0"}
    assert companion_environment(base, home, "m", "k", "GPU-7")["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert companion_environment(base, home, "m", "k", "")["CUDA_VISIBLE_DEVICES"] == ""
    assert companion_environment(base, home, "m", "k", None)["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(("devices", "order"), [("0,2", "PCI_BUS_ID"), ("GPU-7", None), ("", None)])
def test_numbers_of_devices_count_in_the_order_of_the_driver(devices: str, order: str) -> None:
    home = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"} if order else {}
    found = companion_environment({}, home, "m", "k", devices)
    assert (found["CUDA_VISIBLE_DEVICES"], found.get("CUDA_DEVICE_ORDER")) == (devices, order)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "HF_HOME", "CUDA_LAUNCH_BLOCKING"])
def test_settings_that_only_sound_like_credentials_pass(name):
    assert allowed_environment({name: "1"}) == {name: "1"}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_whatever_is_allowed_is_never_forbidden(source):
    assert not any(forbidden(name) for name in allowed_environment(source))


def test_a_mark_is_first_and_has_room_for_the_longest_lease_id():
    environ = marked_environment({"HOME": "/h"}, "standby-1")
    assert next(iter(environ)) == "GPULEASE_LEASE"
    assert len(environ["GPULEASE_LEASE"]) >= 64
    assert is_lease_id("a" * 64)
    assert not any(is_lease_id(bad) for bad in ("", "a" * 65, "../a", "a b", "-a"))


def test_a_configuration_hides_its_token_and_knows_its_channel():
    config = SupervisorConfig.from_json(
        {"lease_id": "a1", "token": "s3cret", "service_url": "https://hub/services/gpulease/"}
    )
    assert "s3cret" not in repr(config)
    assert config.channel_url == "wss://hub/services/gpulease/api/leases/a1/supervisor"


def test_other_versions_are_refused_or_named():
    check_protocol("1.7")
    check_python(home="3.11.9", away="3.11.2")
    with pytest.raises(GPULeaseError):
        check_protocol("2.0")
    with pytest.raises(GPULeaseError):
        check_python(home="3.11.9", away="3.12.9")
    said = check_packages(home={"a": "1", "b": "2", "c": "3"}, away={"a": "1", "b": "2.1", "c": ""})
    assert said == ["b is 2 here and 2.1 on the GPU.", "c 3 is not installed on the GPU."]


def test_links_in_one_environment_are_one_interpreter_and_other_environments_are_not(tmp_path):
    for env in ("one", "two"):
        (tmp_path / env).mkdir()
        for name in ("python", "python3"):
            (tmp_path / env / name).symlink_to(sys.executable)
    one, two = tmp_path / "one", tmp_path / "two"
    assert same_interpreter(str(one / "python"), str(one / "python3"))
    assert not same_interpreter(str(one / "python"), str(two / "python"))


def test_a_process_name_may_hold_anything():
    fields = ["S", "7", *["0"] * 9, "12", "30", *["0"] * 6, "999"]
    row = parse_stat(f"42 (a) b (c) {' '.join(fields)}")
    assert row == ProcessRow(pid=42, parent=7, state="S", start=999, cpu=42)


def test_descendants_are_found_through_generations():
    rows = [ProcessRow(2, 1, "S", 0, 0), ProcessRow(3, 2, "S", 0, 0), ProcessRow(4, 9, "S", 0, 0)]
    assert descendants([1], {row.pid: row for row in rows}) == {2, 3}


def test_a_parked_files_name_cannot_leave_its_directory():
    file = Parking(
        "/park",
        "../ada",
        "..",
    ).file("../../etc/passwd")
    assert file == Path("/park/%2E%2E%2Fada/%2E%2E/%2E%2E%2F%2E%2E%2Fetc%2Fpasswd/values")
    assert Parking("/park", "ada", "@default").file("k") != Parking("/park", "ada").file("k")


def test_what_a_user_has_parked_elsewhere_counts_against_the_bound(tmp_path):
    one, two = Parking(str(tmp_path), "ada", limit=100), Parking(str(tmp_path), "ada", "b", 100)
    other = Parking(str(tmp_path), "bob", limit=100)
    assert one.prepare("k1") == 100
    one.file("k1").write_bytes(bytes(60))
    assert (one.prepare("k1"), two.prepare("k2"), other.prepare("k1")) == (100, 40, 100)
    one.drop("k1")
    assert two.prepare("k2") == 100
    assert not one.file("k1").parent.exists()


def test_the_drivers_devices_are_read_and_hidden_ones_left_out(tmp_path, monkeypatch):
    for number, uuid in enumerate(("GPU-aaa", "GPU-bbb")):
        (tmp_path / str(number)).mkdir()
        text = f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\n"
        (tmp_path / str(number) / "information").write_text(text)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [d["uuid"] for d in visible_devices(tmp_path)] == ["GPU-aaa", "GPU-bbb"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbb")
    (device,) = visible_devices(tmp_path)
    assert (device["name"], device["uuid"]) == ("NVIDIA H200", "GPU-bbb")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert [d["uuid"] for d in visible_devices(tmp_path)] == ["GPU-aaa"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices(tmp_path) == []
    assert visible_devices(Path(os.devnull) / "none") == []
