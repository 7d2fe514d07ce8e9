"""What a side says of its packages is what is installed when it says it."""

import os
import sys
from pathlib import Path

import pytest

from gpulease.errors import GPULeaseError
from gpulease.sides.versions import check_python, environment


def test_a_package_that_is_installed_later_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    os.utime(tmp_path, (0, 0))  # a folder is read again when its time has changed
    before = environment()
    installed = tmp_path / "torch-9.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.1\n")
    after = environment()
    assert (before["packages"], after["packages"]) == ({}, {"torch": "9.1"})


@pytest.mark.parametrize(
    ("version", "free_threaded", "said"),
    [
        ((3, 11), False, ""),
        ((3, 14), False, ""),
        ((3, 15), False, "this kernel runs Python 3.15"),
        ((3, 13), True, "this kernel runs a free-threaded build of Python 3.13"),
    ],
)
def test_a_python_on_which_a_value_could_change_is_refused(
    version: tuple[int, int], free_threaded: bool, said: str
) -> None:
    if not said:
        check_python(version, free_threaded=free_threaded)
        return
    with pytest.raises(GPULeaseError, match=said) as caught:
        check_python(version, free_threaded=free_threaded)
    assert caught.value.reason == "python_not_supported"
