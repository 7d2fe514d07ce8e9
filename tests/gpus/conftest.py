from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpus import stand_in


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> stand_in.Driver:
    """The NVML stand-in with two cards, loaded into this process."""
    stand_in.load()
    found = stand_in.Driver(tmp_path / "nvml", 2)
    monkeypatch.setenv("NVML_STAND_IN", str(found.path))
    return found
