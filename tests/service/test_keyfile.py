"""The service's own secret."""

from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from gpulease.service.settings import keyfile


def test_the_key_is_made_once_and_stays(tmp_path):
    first = keyfile.read_or_make(tmp_path / "a.key")
    assert len(first) == 32
    assert keyfile.read_or_make(tmp_path / "a.key") == first
    assert keyfile.read_or_make(tmp_path / "b.key") != first
    assert (tmp_path / "a.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "not hex", "abcd"])
def test_a_file_that_holds_no_key_is_refused_and_kept(tmp_path, text):
    path = tmp_path / "a.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(GPULeaseError) as error:
        keyfile.read_or_make(path)
    assert error.value.reason == "bad_key_file"
    assert path.read_text() == text
    assert not text or text not in str(error.value)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    keyfile.read_or_make(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o644)
    with pytest.raises(GPULeaseError, match="0644"):
        keyfile.read_or_make(tmp_path / "a.key")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(GPULeaseError, match="No such file"):
        keyfile.read_or_make(tmp_path / "none" / "a.key")


def test_it_lies_beside_the_database():
    assert keyfile.default_path("sqlite:////srv/a.sqlite") == Path("/srv/a.sqlite.key")
    assert keyfile.default_path("postgresql://me@host/name") == Path("gpulease.key")
