"""The build of the cluster's programs says how far it is and stops when the time is up."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

import pytest

from testcluster import build

FOREVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]


def run(command: list[str], cwd: Path, seconds: float) -> tuple[int, str]:
    deadline = time.monotonic() + seconds
    return build._run(command, cwd, dict(os.environ), deadline, build.Progress("[1/1] kubelet"))


def test_a_compiler_is_ended_when_the_time_is_up(tmp_path: Path) -> None:
    with pytest.raises(build.OutOfTimeError, match=r"\[1/1\] kubelet: \d+ s: the time is up"):
        run(FOREVER, tmp_path, 0.2)


def test_without_a_limit_it_says_how_far_it_is_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "SAY_EVERY", 0.05)
    seen = tmp_path / "seen"
    waits = "\n".join(
        (
            "import pathlib, threading",
            f"while not pathlib.Path({str(seen)!r}).exists(): threading.Event().wait(0.01)",
            "print('last words')",
            "raise SystemExit(3)",
        )
    )
    said = build._say

    def say(text: str) -> None:
        said(text)
        seen.touch()

    monkeypatch.setattr(build, "_say", say)
    assert run([sys.executable, "-c", waits], tmp_path, math.inf) == (3, "last words\n")
    assert "[1/1] kubelet: 0 s ..." in capsys.readouterr().err
