"""Clusters that start and end at the same moments keep to numbers of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from testcluster.processes import REPOSITORY

pytestmark = pytest.mark.cluster

ROUNDS = """
import sys
from pathlib import Path
from testcluster import images, namespaces

directory, last = Path(sys.argv[1]), None
for _ in range(8):
    layout = namespaces.claim(directory)
    try:
        layout.make()
        holder = namespaces.make(layout, images.pause_program(), attached=True)
        assert str(directory) in layout.record.read_text()
        if last is not None and last != layout:
            namespaces.remove(last)  # given back: another's by now
        assert namespaces.holder_of(layout) == holder
    finally:
        namespaces.remove(layout)
    last = layout
"""


def test_numbers_taken_and_given_back_at_once_are_nobody_elses(tmp_path: Path) -> None:
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", ROUNDS, str(tmp_path / str(n))],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    errors = [owner.communicate()[1] for owner in owners]
    assert [owner.returncode for owner in owners] == [0] * 4, "\n".join(errors)
