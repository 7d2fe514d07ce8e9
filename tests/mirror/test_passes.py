"""Passes over real directories and the real wire."""

import os
import socket
import stat
from pathlib import Path

import pytest

from gpulease.mirror.words import conflict_lines, left_lines
from tests.helpers import is_root
from tests.mirror.pair import Pair, pair, tree, write


@pytest.fixture
def two(tmp_path):
    with pair(tmp_path) as made:
        yield made


def together(two: Pair) -> dict[str, object]:
    """Both sides' content, which must be the same."""
    assert tree(two.home) == tree(two.away)
    return tree(two.home)


def test_what_is_added_changed_and_deleted_on_one_side_is_so_on_the_other(two):
    write(two.home / "data/a.csv", "one")
    write(two.home / "b.txt", "two")
    (two.home / "empty").mkdir()
    assert two.sync().sent == 2
    assert together(two) == {"data": None, "data/a.csv": b"one", "b.txt": b"two", "empty": None}
    write(two.away / "data/a.csv", "changed by the GPU")
    write(two.away / "out/model.bin", b"\0" * 3_000_000)
    (two.away / "b.txt").unlink()
    (two.away / "empty").rmdir()
    report = two.sync()
    assert sorted(report.written) == ["data/a.csv", "out", "out/model.bin"]
    assert sorted(report.removed) == ["b.txt", "empty"]
    assert set(together(two)) == {"data", "data/a.csv", "out", "out/model.bin"}
    (two.home / "data/a.csv").unlink()
    (two.home / "data").rmdir()
    two.sync()
    assert set(together(two)) == {"out", "out/model.bin"}
    assert two.sync().seconds >= 0


def test_a_pass_over_nothing_new_sends_and_writes_nothing(two):
    write(two.home / "a", "one")
    two.sync()
    before = {side: (side / "a").stat().st_mtime_ns for side in (two.home, two.away)}
    assert len(set(before.values())) == 1
    report = two.sync()
    assert (report.sent, report.received, report.written, report.removed) == (0, 0, [], [])
    assert {side: (side / "a").stat().st_mtime_ns for side in (two.home, two.away)} == before


def test_a_renamed_file_travels_no_second_time(two):
    write(two.home / "old/name.bin", os.urandom(2_500_000))
    assert two.sync().sent_bytes == 2_500_000
    (two.home / "old").rename(two.home / "new")
    report = two.sync()
    assert report.sent_bytes == 0
    assert set(together(two)) == {"new", "new/name.bin"}
    (two.away / "new/name.bin").rename(two.away / "again.bin")
    report = two.sync()
    assert report.received_bytes == 0
    assert set(together(two)) == {"new", "again.bin"}


def test_equal_contents_travel_once(two):
    for name in ("a", "b", "c/d"):
        write(two.home / name, b"x" * 10_000)
    write(two.home / "nothing", b"")
    write(two.home / "nothing too", b"")
    assert two.sync().sent_bytes == 10_000
    assert len(together(two)) == 6
    for name in ("e", "f"):
        write(two.away / name, b"y" * 10_000)
    assert two.sync().received_bytes == 10_000
    assert len(together(two)) == 8


def test_a_conflict_keeps_both_and_names_it(two):
    write(two.home / "results.csv", "first")
    two.sync()
    write(two.home / "results.csv", "mine")
    write(two.away / "results.csv", "the GPU's")
    report = two.sync()
    assert together(two) == {"results.csv": b"mine", "results (from GPU).csv": b"the GPU's"}
    assert conflict_lines(report.conflicts) == [
        "results.csv was changed here and by the GPU: yours keeps its name, the GPU's is "
        "results (from GPU).csv."
    ]
    assert two.sync().conflicts == []


def test_a_file_deleted_here_and_changed_by_the_gpu_is_here_again(two):
    write(two.home / "x", "first")
    two.sync()
    (two.home / "x").unlink()
    write(two.away / "x", "better")
    report = two.sync()
    assert together(two) == {"x": b"better"}
    assert "is here again" in conflict_lines(report.conflicts)[0]


def test_a_directory_in_the_place_of_a_file_and_the_reverse(two):
    write(two.home / "x", "file")
    write(two.home / "d/in", "inside")
    two.sync()
    (two.away / "x").unlink()
    write(two.away / "x/y", "below")
    (two.away / "d/in").unlink()
    (two.away / "d").rmdir()
    write(two.away / "d", "a file now")
    two.sync()
    assert together(two) == {"x": None, "x/y": b"below", "d": b"a file now"}


def test_a_file_over_a_directory_with_news_steps_aside(two):
    write(two.home / "d/in", "inside")
    two.sync()
    write(two.home / "d/new", "new at home")
    (two.away / "d/in").unlink()
    (two.away / "d").rmdir()
    write(two.away / "d", "a file now")
    two.sync()
    found = together(two)
    assert found["d/new"] == b"new at home"
    assert found["d (from GPU)"] == b"a file now"


def test_permissions_links_and_times_travel(two):
    script = write(two.home / "run.sh", "#!/bin/sh\n")
    script.chmod(0o750)
    os.utime(script, ns=(10**18, 10**18 + 7))
    (two.home / "link").symlink_to("run.sh")
    (two.home / "deep").mkdir()
    (two.home / "deep/up").symlink_to("../run.sh")
    (two.home / "nowhere").symlink_to("missing")
    two.sync()
    assert tree(two.away)["deep/up"] == ("../run.sh",)
    assert tree(two.away)["nowhere"] == ("missing",)
    found = (two.away / "run.sh").stat()
    assert found.st_mode & stat.S_IXUSR
    assert found.st_mtime_ns == 10**18 + 7
    (two.away / "run.sh").chmod(0o600)
    (two.away / "link").unlink()
    (two.away / "link").symlink_to("deep")
    two.sync()
    assert stat.S_IMODE(script.stat().st_mode) == 0o640
    assert str((two.home / "link").readlink()) == "deep"


def test_what_is_no_ordinary_file_is_left_out_and_named(two, tmp_path):
    os.mkfifo(two.home / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(two.home / "sock"))
        (two.home / "out").symlink_to(tmp_path)
        (two.home / "abs").symlink_to("/etc/passwd")
        write(two.home / ".ipynb_checkpoints/a.ipynb", "x")
        write(two.home / "pkg/__pycache__/a.pyc", "x")
        write(two.home / "pkg/a.py", "x = 1")
        report = two.sync()
    assert set(tree(two.away)) == {"pkg", "pkg/a.py"}
    assert {(left.path, left.why) for left in report.left} == {
        ("pipe", "special"), ("sock", "special"), ("out", "outside"), ("abs", "outside"),
    }  # fmt: skip
    assert (two.home / "pipe").is_fifo()


def test_links_in_a_circle_are_links(two):
    (two.home / "a").mkdir()
    (two.home / "a/loop").symlink_to("../a")
    (two.home / "x").symlink_to("y")
    (two.home / "y").symlink_to("x")
    two.sync()
    assert together(two) == {"a": None, "a/loop": ("../a",), "x": ("y",), "y": ("x",)}


def test_names_that_are_no_utf8_travel(two):
    name = os.fsdecode(b"caf\xe9-\xff.txt")
    write(two.home / name, "x")
    write(two.home / "naïve ✓ \n.txt", "y")
    two.sync()
    write(two.away / os.fsdecode(b"\xfe/\xfd"), "z")
    two.sync()
    assert together(two)[os.fsdecode(b"\xfe/\xfd")] == b"z"
    assert len(together(two)) == 4


def test_a_file_that_a_link_hides_is_not_written_through(two, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    write(two.home / "d/x", "1")
    two.sync()
    write(two.away / "d/x", "2")
    (two.home / "d/x").unlink()
    (two.home / "d").rmdir()
    (two.home / "d").symlink_to(outside)
    two.sync()
    assert list(outside.iterdir()) == []
    assert (two.home / "d").is_symlink()
    assert (two.home / "d (from GPU)/x").read_text() == "2"


def test_the_students_own_list_is_heeded_and_settings_at_home_stay(two, monkeypatch):
    write(two.home / ".gpuleaseignore", "# large\n*.ckpt\n/raw/\nnotes/private\n")
    for name in ("a.ckpt", "deep/b.ckpt", "raw/x", "notes/private", "notes/open", ".secret/key"):
        write(two.home / name, "x")
    monkeypatch.setenv("HOME", str(two.home))
    two.sync()
    assert set(tree(two.away)) == {".gpuleaseignore", "deep", "notes", "notes/open"}
    write(two.away / "new.ckpt", "x")
    two.sync()
    assert not (two.home / "new.ckpt").exists()


def test_a_directory_that_still_holds_what_is_passed_over_stays_on_both_sides(two):
    write(two.home / "pkg/a.py", "x")
    two.sync()
    write(two.home / "pkg/__pycache__/a.pyc", "x")
    (two.away / "pkg/a.py").unlink()
    (two.away / "pkg").rmdir()
    two.sync()
    assert (two.home / "pkg/__pycache__/a.pyc").exists()
    assert not (two.home / "pkg/a.py").exists()
    assert (two.away / "pkg").is_dir()


def test_a_file_of_two_gib_is_refused_by_its_bound_with_advice(two):
    with (two.home / "film.raw").open("wb") as file:
        file.truncate(2 * 2**30)
    write(two.home / "small", "x")
    report = two.sync()
    assert set(tree(two.away)) == {"small"}
    line = left_lines(report.left, two.end.bounds)[0]
    assert line.startswith("film.raw (2.1 GB): not on the GPU, as larger than 536.9 MB")
    assert "data volume" in line
    assert report.seconds < 30
    with (two.away / "result.raw").open("wb") as file:
        file.truncate(2 * 2**30)
    report = two.sync()
    assert not (two.home / "result.raw").exists()
    assert any("result.raw" in line and "on the GPU only" in line
               for line in left_lines(report.left, two.end.bounds))  # fmt: skip


def test_a_file_that_grew_beyond_its_bound_is_absent_not_old(tmp_path):
    with pair(tmp_path, total=20_000) as two:
        write(two.home / "x", b"1" * 9_000)
        two.sync()
        write(two.home / "x", b"1" * 11_000)
        two.sync()
        assert tree(two.away) == {}
        write(two.home / "x", b"2" * 100)
        two.sync()
        assert together(two) == {"x": b"2" * 100}


def test_beyond_the_total_the_largest_files_stay_home_and_are_named(tmp_path):
    with pair(tmp_path, total=20_000) as two:
        for number in range(4):
            write(two.home / f"f{number}", bytes([number]) * (6_000 + number))
        report = two.sync()
        assert set(tree(two.away)) == {"f0", "f1", "f2"}
        line = left_lines(report.left, two.end.bounds)[0]
        assert line.startswith("f3 (6.0 kB): not on the GPU, as the mirror's 20.0 kB are")
        assert ".gpuleaseignore" in line


def test_too_many_files_are_refused_as_a_whole(two, monkeypatch):
    write(two.home / "a", "x")
    two.sync()
    for number in range(30):
        write(two.home / f"f{number}", "x")
    two.end.bounds = two.end.bounds.__class__(2**30, 2**29, 20)
    report = two.sync()
    assert "more than 20 files" in report.refusal
    assert set(tree(two.away)) == {"a"}
    for number in range(30):
        (two.home / f"f{number}").unlink()
    assert two.sync().refusal == ""


def test_many_small_files_and_a_pass_over_nothing_new(two):
    for number in range(500):
        path = two.home / f"d{number % 50}" / f"f{number}.txt"
        if number < 50:
            path.parent.mkdir()
        path.write_text(f"{number}\n" * 20)
    first = two.sync()
    assert first.sent == 500
    assert len(together(two)) == 550
    two.sync()
    report = two.sync()
    assert (report.sent, report.received, report.paths) == (0, 0, 550)
    for number in range(0, 500, 50):
        write(two.away / f"d0/f{number}.txt", "changed")
    assert two.sync().received == 1
    together(two)


def test_two_kernels_share_one_mirror(two):
    second = two.join()
    write(two.home / "a", "1")
    assert two.sync().sent == 1
    assert second.sync().sent == 0
    write(two.home / "a", "2")
    assert second.sync().conflicts == []
    write(two.away / "a", "3")
    assert second.sync().written == ["a"]
    assert two.sync().conflicts == []
    assert together(two) == {"a": b"3"}


def test_a_home_kernel_that_is_new_takes_up_where_the_last_one_was(two):
    write(two.home / "a", "1")
    write(two.home / "b", "1")
    two.sync()
    (two.home / "a").unlink()
    write(two.home / "b", "2")
    report = two.join().sync()
    assert report.conflicts == []
    assert together(two) == {"b": b"2"}


def test_directories_of_more_than_ones_own_work_are_refused(tmp_path, monkeypatch):
    with pair(tmp_path) as two:
        monkeypatch.setenv("HOME", str(two.home / "ada"))
        write(two.home / "ada/x", "1")
        assert "more than your own work" in two.sync().refusal
        assert tree(two.away) == {}


@pytest.mark.skipif(not is_root(), reason="needs root: a file system of a fixed size")
@pytest.mark.parametrize("full", ["home", "mirror"])
def test_a_full_disk_is_named_and_leaves_whole_files(tmp_path, full):
    import subprocess

    for side in ("home", "mirror"):
        (tmp_path / side).mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path / full)],
        check=False, capture_output=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        with pair(tmp_path) as two:
            other = two.away if full == "home" else two.home
            write(other / "large.bin", os.urandom(3_000_000))
            write(other / "small", "x")
            report = two.sync()
            mine = two.home if full == "home" else two.away
            assert tree(mine) == {"small": b"x"}
            assert [(left.path, left.why) for left in report.left] == [("large.bin", "full")]
            assert "quota is full" in left_lines(report.left, two.end.bounds)[0]
            assert (other / "large.bin").stat().st_size == 3_000_000
            (other / "large.bin").unlink()
            assert two.sync().left == []
            assert set(together(two)) == {"small"}
    finally:
        subprocess.run(["umount", str(tmp_path / full)], check=True)


def test_nothing_is_left_of_what_was_on_its_way(two):
    write(two.home / "a", b"x" * 5_000_000)
    two.sync()
    write(two.away / "b", b"y" * 5_000_000)
    two.sync()
    for side in (two.home, two.away):
        assert {path.name for path in Path(side).iterdir()} == {"a", "b"}
