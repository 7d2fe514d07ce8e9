"""What mirrored files cost a GPU cell: passes over many small files, and a large one.

Both ends are real and in processes of their own; beside each stands what a person would do by hand
on one machine: a walk that looks at every file (`os.walk` and `stat`), and a copy (`cp -r`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Aim, Variants, progress, report
from gpulease.channel.keys import Endpoint
from gpulease.mirror.home import HomeEnd
from tests.mirror.pair import keys

FILES, LARGE = 10_000, 256 * 2**20
TOTAL = 2**31
NOTHING, WALK = "pass, nothing changed", "peer: os.walk and stat"
ONE = "pass, one file changed"
FIRST, COPY = "first pass, small files", "peer: cp -r of them"
SENT, COPY_LARGE = "pass, one large file", "peer: cp of it"


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return how long passes and their peers take, for so many files of a directory."""
    variants = Variants()
    for number in range(rounds):
        progress(f"  round {number + 1}")
        with tempfile.TemporaryDirectory() as made:
            _round(Path(made), max(1, int(FILES * scale)), int(LARGE * scale), variants)
    seen, walked = variants.summaries()[NOTHING]["median"], variants.summaries()[WALK]["median"]
    aims = [Aim("pass over nothing new, times a plain walk", round(seen / walked, 2), 4.0)]
    return report("files", variants, aims, files=int(FILES * scale), large=int(LARGE * scale))


def _round(directory: Path, files: int, large: int, variants: Variants) -> None:
    home, away = directory / "home", directory / "mirror"
    away.mkdir()
    _fill(home, files)
    with _mirrored(home, away) as end:
        with variants.timed(FIRST):
            end.sync()
        with variants.timed(COPY):
            subprocess.run(["cp", "-r", str(home), str(directory / "copy")], check=True)
        end.sync()
        with variants.timed(NOTHING):
            end.sync()
        with variants.timed(WALK):
            _walk(home)
        (home / "d0" / "f0").write_text("changed")
        with variants.timed(ONE):
            end.sync()
        (home / "large").write_bytes(os.urandom(large))
        with variants.timed(SENT):
            end.sync()
        with variants.timed(COPY_LARGE):
            subprocess.run(["cp", str(home / "large"), str(directory / "large")], check=True)


def _fill(home: Path, files: int) -> None:
    for number in range(files):
        path = home / f"d{number % 100}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 20)


def _walk(home: Path) -> int:
    return sum(
        os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - as quick as it can be
        for place, _, names in os.walk(home)
        for name in names
    )


@contextmanager
def _mirrored(home: Path, away: Path) -> Iterator[HomeEnd]:
    own = keys()
    command = [sys.executable, "-m", "tests.mirror.away_main"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(away), own.public, TOTAL]) + "\n")
        process.stdin.flush()
        address, server_key = json.loads(process.stdout.readline())
        end = HomeEnd(home, Endpoint(address, server_key), own, TOTAL)
        try:
            yield end
        finally:
            end.close()
            process.stdin.close()
