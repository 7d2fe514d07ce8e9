"""What may still be taken: the least of the machine, the cgroups above and the rlimit."""

import resource

import psutil
import pytest

from gpulease.sides import memory

GIB = 2**30


def group(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(str(text))


def proc(tmp_path, *lines):
    file = tmp_path / "proc"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(autouse=True)
def big_machine(monkeypatch):
    real = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: real._replace(available=64 * GIB))


def test_version_2(tmp_path):
    group(tmp_path / "a", {"memory.max": 2 * GIB, "memory.current": GIB})
    assert memory.available(tmp_path, proc(tmp_path, "0::/a")) == GIB


def test_version_2_counts_what_can_be_reclaimed(tmp_path):
    stat = "anon 7\ninactive_file 4096\nactive_file 9\n"
    group(tmp_path / "a", {"memory.max": 2 * GIB, "memory.current": GIB, "memory.stat": stat})
    assert memory.available(tmp_path, proc(tmp_path, "0::/a")) == GIB + 4096


def test_the_tightest_parent_counts(tmp_path):
    group(tmp_path / "a" / "b", {"memory.max": "max", "memory.current": 5})
    group(tmp_path / "a", {"memory.max": 3 * GIB, "memory.current": 2 * GIB})
    group(tmp_path, {"memory.max": 9 * GIB, "memory.current": GIB})
    assert memory.available(tmp_path, proc(tmp_path, "0::/a/b")) == GIB


def test_inside_a_cgroup_namespace_the_root_counts(tmp_path):
    group(tmp_path, {"memory.max": GIB, "memory.current": 100})
    assert memory.available(tmp_path, proc(tmp_path, "0::/")) == GIB - 100


def test_a_full_group_leaves_nothing(tmp_path):
    group(tmp_path / "a", {"memory.max": GIB, "memory.current": 2 * GIB})
    assert memory.available(tmp_path, proc(tmp_path, "0::/a")) == 0


def test_version_1(tmp_path):
    files = {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": GIB}
    group(tmp_path / "memory" / "a", files | {"memory.stat": "total_inactive_file 10\n"})
    file = proc(tmp_path, "3:cpu,cpuacct:/z", "2:memory:/a", "0::/nothing")
    assert memory.available(tmp_path, file) == 3 * GIB + 10


def test_version_1_without_a_limit(tmp_path):
    files = {"memory.limit_in_bytes": 9223372036854771712, "memory.usage_in_bytes": GIB}
    group(tmp_path / "memory" / "a", files)
    assert memory.available(tmp_path, proc(tmp_path, "2:memory:/a")) == 64 * GIB


def test_version_1_where_only_the_mount_of_the_container_is_seen(tmp_path):
    files = {"memory.limit_in_bytes": GIB, "memory.usage_in_bytes": 0}
    group(tmp_path / "memory", files)
    assert memory.available(tmp_path, proc(tmp_path, "2:memory:/docker/abc")) == GIB


@pytest.mark.parametrize("text", ["", "garbage", "-5", "1.5"])
def test_unreadable_numbers_are_no_limit(tmp_path, text):
    group(tmp_path / "a", {"memory.max": text, "memory.current": 1})
    assert memory.available(tmp_path, proc(tmp_path, "0::/a")) == 64 * GIB


@pytest.mark.parametrize("lines", [[], ["garbage"], ["0::/a:b"], [""]])
def test_an_unreadable_list_of_groups_is_no_limit(tmp_path, lines):
    assert memory.available(tmp_path, proc(tmp_path, *lines)) == 64 * GIB


def test_no_list_of_groups(tmp_path):
    assert memory.available(tmp_path, tmp_path / "absent") == 64 * GIB


def test_the_limit_of_the_process(tmp_path, monkeypatch):
    used = psutil.Process().memory_info().vms
    limits = {resource.RLIMIT_AS: (used + 2 * GIB, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[which])
    left = memory.available(tmp_path, tmp_path / "absent")
    assert GIB < left < 3 * GIB


def test_this_process_may_take_something():
    assert memory.available() > 0
