"""Clusters that start together get numbers of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from testcluster import namespaces
from testcluster.layout import Layout

pytestmark = pytest.mark.cluster

CLAIM = """
import sys
from pathlib import Path
from testcluster import namespaces
print("ready", flush=True)
sys.stdin.readline()
print(namespaces.claim(Path(sys.argv[1])).number, flush=True)
sys.stdin.read()
"""


def read(claim: "subprocess.Popen[str]") -> str:
    assert claim.stdout is not None
    return claim.stdout.readline().strip()


def test_starts_at_the_same_moment_take_different_numbers(tmp_path: Path) -> None:
    claims = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(tmp_path / str(n))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    numbers: list[int] = []
    try:
        for claim in claims:
            assert read(claim) == "ready"
        for claim in claims:
            assert claim.stdin is not None
            claim.stdin.write("go\n")
            claim.stdin.flush()
        numbers = [int(read(claim)) for claim in claims]
    finally:
        for claim in claims:
            claim.communicate()
        for number in numbers:
            namespaces.remove(Layout(directory=tmp_path, number=number))
    assert len(set(numbers)) == len(numbers)
