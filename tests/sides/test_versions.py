"""What a side says of its packages is what is installed when it says it."""

import os
import sys
from pathlib import Path

import pytest

from gpulease.sides.versions import environment


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
