"""A pass that cannot be made says why, with its code and what to do; both sides stay whole."""

import os
import subprocess
from pathlib import Path

import pytest
import zmq

from gpulease.channel.keys import Endpoint
from gpulease.companion.mirrors import Mirrors
from gpulease.companion.ports import Ports
from gpulease.errors import GPULeaseError
from gpulease.mirror.home import HomeEnd
from tests.mirror.pair import keys, pair, tree, write


def test_a_mirror_that_does_not_answer_is_given_up_in_time(tmp_path):
    """It is there and proves itself, and says nothing."""
    mine, theirs = keys(), keys()
    context = zmq.Context()
    mute = context.socket(zmq.ROUTER)
    mute.curve_server, mute.curve_secretkey = True, theirs.secret.encode()
    port = mute.bind_to_random_port("tcp://127.0.0.1")
    endpoint = Endpoint(f"tcp://127.0.0.1:{port}", theirs.public)
    write(tmp_path / "notes.txt", "mine")
    end = HomeEnd(tmp_path, endpoint, mine, 2**20, reply_within=0.3)
    try:
        with pytest.raises(GPULeaseError) as silent:
            end.sync()
    finally:
        end.close()
        mute.close(0)
        context.term()
    assert (silent.value.reason, silent.value.status) == ("mirror_silent", 504)
    assert silent.value.next_step == "Run the cell again."
    assert tree(tmp_path) == {"notes.txt": b"mine"}


def test_a_mirror_that_fails_inside_says_so_and_goes_on(tmp_path):
    with pair(tmp_path) as two:
        write(two.home / "a", "1")
        away = two._aways[0]
        whole = away._answers["mirror.put"]

        def broken(message):
            raise RuntimeError("a path of this machine")

        away._answers["mirror.put"] = broken
        with pytest.raises(GPULeaseError) as failed:
            two.sync()
        assert (failed.value.reason, failed.value.status) == ("mirror_failed", 500)
        assert "a path of this machine" not in failed.value.sentence
        assert tree(two.away) == {}
        away._answers["mirror.put"] = whole
        two.sync()
        assert tree(two.away) == {"a": b"1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system that is read only")
def test_a_home_that_cannot_be_written_is_named(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "none", str(home)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        with pair(tmp_path) as two:
            write(two.home / "a", "1")
            two.sync()
            write(two.away / "new", "from the GPU")
            subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
            with pytest.raises(GPULeaseError) as refused:
                two.sync()
            assert (refused.value.reason, refused.value.status) == ("mirror_unwritable", 409)
            assert str(two.home) in refused.value.sentence
            assert tree(two.home) == {"a": b"1"}
            subprocess.run(["mount", "-o", "remount,rw", str(home)], check=True)
            two.sync()
            assert tree(two.home) == {"a": b"1", "new": b"from the GPU"}
    finally:
        subprocess.run(["umount", str(home)], check=True)


@pytest.mark.parametrize("escape", ["..", "../other", "/etc", "course/../../other"])
def test_only_directories_in_the_mirrors_place_are_mirrored(tmp_path, escape):
    place = tmp_path / "stu"
    place.mkdir()
    mirrors = Mirrors(str(place), 2**20, "127.0.0.1", Ports())
    with pytest.raises(GPULeaseError) as refused:
        mirrors.open("k1", str(place / escape), keys().public)
    assert (refused.value.reason, refused.value.status) == ("not_mirrored", 409)
    assert str(place) in refused.value.next_step
    assert not (tmp_path / "other").exists()
    view = mirrors.open("k1", str(place / "course"), keys().public)
    mirrors.close("k1")
    assert view["limit"] == 2**20
    assert Path(place, "course").is_dir()


def test_a_mounted_home_needs_no_mirror(tmp_path):
    mirrors = Mirrors("", 2**20, "127.0.0.1", Ports())
    with pytest.raises(GPULeaseError) as refused:
        mirrors.open("k1", str(tmp_path), keys().public)
    assert refused.value.reason == "not_mirrored"
    assert "home is mounted there" in refused.value.next_step
