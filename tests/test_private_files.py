"""What the service writes is its own."""

import os

import pytest

from gpulease.errors import GPULeaseError
from gpulease.private_files import make_private, require_private


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
