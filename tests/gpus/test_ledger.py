"""What the service has not taken waits on disk, bounded, over crashes of the agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpulease.gpus.agent.health import Fault
from gpulease.gpus.agent.ledger import Backlog
from gpulease.policy.quarantine import Incident

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def batch(word: str = "x") -> Any:
    return {"sequence": 0, "at": "", "devices": [], "holders": [], "seconds": [], "problem": word}


def waiting(ledger: Backlog) -> list[int]:
    return [sequence for sequence, _ in ledger.next(1000, 2**30)]


def test_batches_are_numbered_over_restarts_and_taken_ones_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "ledger"
    ledger = Backlog(path)
    assert [ledger.add(batch()) for _ in range(3)] == [1, 2, 3]
    ledger.remove([2])
    ledger.close()
    again = Backlog(path)
    assert (again.run, again.problem) == (ledger.run, "")
    assert waiting(again) == [1, 3]
    again.remove([1, 3])
    assert again.add(batch()) == 4
    assert json.loads(again.next(1, 1)[0][1])["sequence"] == 4
    again.close()


def test_the_newest_comes_first_then_the_oldest_and_all_within_bounds() -> None:
    ledger = Backlog(None)
    for _ in range(10):
        ledger.add(batch("y" * 1000))
    assert [n for n, _ in ledger.next(3, 2**30)] == [1, 2, 10]
    assert [n for n, _ in ledger.next(100, 2500)] == [1, 10]
    assert [n for n, _ in ledger.next(100, 1)] == [10]
    assert ledger.next(100, 2**30) == ledger.next(10, 2**30)
    ledger.close()


def test_what_is_a_day_old_or_too_much_is_given_up_and_counted(tmp_path: Path) -> None:
    now = [1000.0]
    ledger = Backlog(tmp_path / "l", clock=lambda: now[0], age_max=100, bytes_max=20_000)
    ledger.add(batch())
    now[0] += 101
    ledger.add(batch())
    assert (waiting(ledger), ledger.dropped) == ([2], 1)
    for _ in range(100):
        ledger.add(batch(os.urandom(400).hex()))
    assert ledger.waiting().bytes <= 20_000
    assert ledger.dropped > 1
    assert waiting(ledger)[-1] == 102, "the newest are kept"
    assert ledger.waiting().since == now[0]
    ledger.close()


def test_faults_are_kept_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    faults = [
        Fault("GPU-1", Incident("xid", NOW, NOW, 79)),
        Fault("GPU-2", Incident("gpu_lost", NOW)),
    ]
    ledger = Backlog(path)
    ledger.note([Fault("GPU-9", Incident("xid", NOW, NOW, 48))])
    ledger.note(faults)
    ledger.close()
    again = Backlog(path)
    assert again.faults() == faults
    again.close()


def test_a_file_that_is_none_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"this is no database" * 1000)
    ledger = Backlog(path)
    assert ledger.add(batch()) == 1
    assert ledger.problem == ""
    assert (tmp_path / "ledger.broken").read_bytes().startswith(b"this is no")
    ledger.close()


def test_where_nothing_can_be_written_it_is_said_and_the_memory_serves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (None, tmp_path / "file" / "ledger"):
        ledger = Backlog(path)
        assert "nothing outlives" in ledger.problem
        assert ledger.add(batch()) == 1
        ledger.close()


def test_a_disk_that_fails_later_is_said_and_the_memory_serves(tmp_path: Path) -> None:
    ledger = Backlog(tmp_path / "ledger")
    ledger.add(batch())
    run = ledger.run
    ledger._store.execute("drop table batch")  # as if the file were taken away
    assert ledger.add(batch()) == 1
    assert "the ledger failed" in ledger.problem
    assert ledger.run != run, "numbers begin again, so they are another run's"
    ledger.close()


WRITER = """
import sys
from pathlib import Path
from gpulease.gpus.agent.ledger import Backlog
ledger = Backlog(Path(sys.argv[1]))
while True:
    batch = {"sequence": 0, "at": "", "devices": [], "holders": [], "seconds": [], "problem": ""}
    print(ledger.add(batch), flush=True)
"""


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_whatever_was_written_outlives_a_kill(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "ledger"
    words = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        seen = [int(writer.stdout.readline()) for _ in range(lines)]
        os.kill(writer.pid, signal.SIGKILL)
    ledger = Backlog(path)
    found = waiting(ledger)
    assert found[: len(seen)] == seen
    assert found == list(range(1, len(found) + 1))
    assert ledger.add(batch()) == len(found) + 1
    ledger.close()
