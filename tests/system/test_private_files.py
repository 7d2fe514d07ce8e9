"""What the service writes is its own."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from gpulease.service.run import RunningService
from gpulease.system.private_files import (
    make_private,
    process_folder,
    require_closed_folder,
    require_private,
)
from tests.service.kit import options


def test_a_file_is_made_private_whatever_the_umask_and_never_replaced(tmp_path):
    old = os.umask(0)
    try:
        assert make_private(tmp_path / "key", b"one")
    finally:
        os.umask(old)
    assert not make_private(tmp_path / "key", b"two")
    assert (tmp_path / "key").read_bytes() == b"one"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]
    require_private(tmp_path / "key", tmp_path / "absent")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    make_private(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(GPULeaseError) as error:
        require_private(tmp_path / "key")
    assert error.value.reason == "file_open_to_others"
    assert f"{mode:04o}" in error.value.sentence
    assert "chmod 600" in error.value.next_step


def test_a_file_of_another_account_is_refused(tmp_path, monkeypatch):
    make_private(tmp_path / "key")
    owner = (tmp_path / "key").stat().st_uid
    if owner == 0:
        os.chown(tmp_path / "key", 4321, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(GPULeaseError, match="belongs to user"):
        require_private(tmp_path / "key")


_MAKES = """
from gpulease.system.private_files import process_folder
folder = process_folder()
(folder / "kernel.json").write_text("a key")
print(folder, flush=True)
input()
"""


def test_what_a_killed_process_leaves_goes_with_the_next_one(tmp_path, monkeypatch):
    def process():
        made = subprocess.Popen(
            [sys.executable, "-c", _MAKES], env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return made, made.stdout.readline().strip()

    foreign = tmp_path / "gpulease-other"
    foreign.mkdir()
    (killed, left), (living, kept) = process(), process()
    with killed, living:
        killed.send_signal(signal.SIGKILL)
        killed.wait(30)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        own = process_folder()
        assert own.stat().st_mode & 0o777 == 0o700
        assert {str(each) for each in tmp_path.iterdir()} == {str(own), kept, str(foreign)}
        assert left not in {str(own), kept}
        living.kill()


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o733])
def test_a_folder_in_which_anybody_may_replace_a_file_is_refused(tmp_path: Path, mode: int) -> None:
    below = tmp_path / "open" / "below"
    below.mkdir(parents=True)
    file = below / "leases.sqlite"
    require_closed_folder(file, tmp_path / "absent" / "key")
    (tmp_path / "open").chmod(mode)
    for path in (file, tmp_path / "open" / "key"):
        with pytest.raises(GPULeaseError, match=f"mode of .*/open is {mode:04o}") as error:
            require_closed_folder(path)
        assert error.value.reason == "file_open_to_others"
    (tmp_path / "open").chmod(mode | 0o1000)  # as /tmp
    require_closed_folder(file)
    (tmp_path / "open").chmod(0o775)  # the service's own group
    require_closed_folder(file)


async def test_a_service_does_not_start_in_a_folder_that_is_open_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # noqa: ASYNC240 - nothing else runs
    service = RunningService(options(tmp_path))
    with pytest.raises(GPULeaseError, match="Any account of this machine may replace"):
        service._open_store()
