"""Who may share memory with a wire: its own other end, and nobody else."""

import errno
import mmap
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpulease.wire.lane import new_file
from gpulease.wire.near import Calling, Listening, Meeting

_CALLS = """
import os, socket, sys
os.setuid(65534)
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect("\\0" + sys.argv[1])
try:
    socket.send_fds(one, [sys.argv[2].encode()], [os.memfd_create("x")])
    heard = one.recv(1)
except (BrokenPipeError, ConnectionResetError):
    heard = b""  # it is hung up on
sys.exit(bool(heard))
"""


@pytest.fixture
def listening() -> Iterator[Listening]:
    each = Listening()
    yield each
    each.close()


def caller(listening: Listening) -> socket.socket:
    select.select([listening.fileno()], [], [], 30)
    found = listening.accept()
    assert found is not None
    select.select([found], [], [], 30)
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_two_ends_of_a_wire_meet(listening: Listening) -> None:
    calling = Calling(listening.meeting)
    here = listening.hear(caller(listening))
    there = calling.hear()
    assert here is not None
    assert there is not None
    here.close()
    there.close()


def test_a_caller_of_another_lease_is_sent_away_with_its_file(listening: Listening) -> None:
    other = Listening()
    before = open_files()
    calling = Calling(replace(other.meeting, name=listening.meeting.name))
    assert listening.hear(caller(listening)) is None
    assert calling.hear() is None
    assert open_files() == before
    other.close()
    again = Calling(listening.meeting)
    lane = listening.hear(caller(listening))
    assert lane is not None, "the right one is let in afterwards"
    lane.close()
    again.close()


def test_who_listens_in_place_of_the_client_gets_no_lane() -> None:
    thief, home = Listening(), Listening()
    calling = Calling(replace(home.meeting, name=thief.meeting.name))
    thief.meeting = replace(home.meeting, answer="0" * 64)  # it hears the word, and knows no answer
    lane = thief.hear(caller(thief))
    assert calling.hear() is None
    assert lane is not None
    for each in (lane, thief, home):
        each.close()


def test_memory_that_could_be_cut_short_is_no_lane(listening: Listening) -> None:
    file = os.memfd_create("other", os.MFD_CLOEXEC)
    os.ftruncate(file, os.fstat(new := new_file()).st_size)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect("\0" + listening.meeting.name)
        socket.send_fds(one, [listening.meeting.call.encode()], [file])
        assert listening.hear(caller(listening)) is None
    os.close(file)
    os.close(new)


def test_without_memory_for_it_there_is_no_lane(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    calling = Calling(listening.meeting)
    one = caller(listening)

    def none(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    before = open_files()
    monkeypatch.setattr(mmap, "mmap", none)
    assert listening.hear(one) is None
    assert calling.hear() is None
    assert open_files() < before, "nothing is left open"


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_one_file_of_memory_comes_with_the_word(listening: Listening, count: int) -> None:
    pipe = os.pipe()  # to read it would wait for ever
    files = [pipe[0], *(new_file() for _ in range(count - 1))][:count]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect("\0" + listening.meeting.name)
        before = open_files()
        socket.send_fds(one, [listening.meeting.call.encode()], files)
        assert listening.hear(caller(listening)) is None
        assert one.recv(1) == b""
        assert open_files() == before, "what came is closed"
    for file in {*files, *pipe}:
        os.close(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_heard_even_with_the_word(listening: Listening) -> None:
    meeting = listening.meeting
    command = [sys.executable, "-c", _CALLS, meeting.name, meeting.call]
    with subprocess.Popen(command) as stranger:
        select.select([listening.fileno()], [], [], 30)
        assert listening.accept() is None
        assert stranger.wait(30) == 0


def test_many_callers_that_say_nothing_are_a_few(listening: Listening) -> None:
    silent = []
    for _ in range(20):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.connect("\0" + listening.meeting.name)
        silent.append(one)
        listening.accept()
    assert len(listening.callers) == 8
    for one in silent:
        one.close()


def test_nobody_is_there_on_another_machine() -> None:
    before = open_files()
    with pytest.raises(OSError, match="refused"):
        Calling(Meeting("gpulease-nobody", "a", "b"))
    assert open_files() == before


def test_the_words_are_shown_nowhere(listening: Listening) -> None:
    assert listening.meeting.call not in repr(listening.meeting)
    assert listening.meeting.answer not in repr(listening.meeting)
