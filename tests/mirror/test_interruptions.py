"""Kills and changes at any moment: whole files on both sides, and no version lost."""

import contextlib
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulease.errors import GPULeaseError
from gpulease.mirror.entries import Kind
from gpulease.mirror.rules import STAGING, Rules
from gpulease.mirror.scan import Scanner
from tests.helpers import draws, is_root
from tests.mirror.pair import Pair, pair, tree, write

SEED = random.SystemRandom().randrange(2**32)


def mess(root: Path, chance: random.Random, tag: str) -> dict[str, bytes]:
    """Change a directory's files at random; return what was written, by path."""
    written: dict[str, bytes] = {}
    for number in range(120):
        path = root / f"d{chance.randrange(6)}" / f"f{number}"
        size = chance.choice([0, 10, 3_000, 200_000])
        if chance.random() < 0.2 and path.exists():
            path.unlink()
        elif chance.random() < 0.6:
            content = f"{tag} {number} ".encode() + chance.randbytes(size)
            written[str(path.relative_to(root))] = content
            write(path, content)
    return written


def killed_home(two: Pair, after: float) -> None:
    """Run a pass in another process and kill it so many seconds after it began."""
    endpoint, own = two.listen()
    said = [str(two.home), endpoint.address, endpoint.server_key, own.public, own.secret, two.total]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mirror.home_main"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(json.dumps(said).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"begun\n"
        timer = threading.Timer(after, process.kill)
        timer.start()
        process.stdout.readline()
        timer.cancel()
        process.kill()
        process.wait()
        timer.join()


def visible(root: Path) -> dict[str, object]:
    return {path: what for path, what in tree(root).items() if not path.startswith(STAGING)}


@pytest.mark.processes
@pytest.mark.parametrize("number", range(8))
def test_a_home_kernel_killed_at_any_moment_leaves_whole_files(tmp_path, number):
    chance = random.Random(SEED + number)
    print(f"seed {SEED + number}")  # noqa: T201 - so that a failure can be run again
    with pair(tmp_path) as two:
        mess(two.home, chance, "first")
        two.sync()
        base = visible(two.home)
        mine, theirs = mess(two.home, chance, "home"), mess(two.away, chance, "gpu")
        whole = {*base.values(), *mine.values(), *theirs.values()} - {None}
        killed_home(two, chance.uniform(0, 0.4))
        for side in (two.home, two.away):
            assert {what for what in visible(side).values() if what is not None} <= whole
        report = two.join().sync()
        assert visible(two.home) == visible(two.away)
        at_home = set(visible(two.home).values())
        assert set(mine.values()) <= at_home
        assert set(theirs.values()) <= at_home
        assert report.left == []


@pytest.mark.parametrize("number", range(draws(2)))
def test_an_interrupt_at_any_moment_leaves_whole_files_and_the_next_pass_goes_on(tmp_path, number):
    chance = random.Random(SEED + number)
    print(f"seed {SEED + number}")  # noqa: T201
    with pair(tmp_path) as two:
        mess(two.home, chance, "first")
        two.sync()
        base = visible(two.home)
        mine, theirs = mess(two.home, chance, "home"), mess(two.away, chance, "gpu")
        whole = {*base.values(), *mine.values(), *theirs.values()} - {None}
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            for _ in range(3):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.2))
                with contextlib.suppress(KeyboardInterrupt):
                    two.sync()
                    signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        for side in (two.home, two.away):
            assert {what for what in visible(side).values() if what is not None} <= whole
        two.sync()
        assert visible(two.home) == visible(two.away)
        at_home = set(visible(two.home).values())
        assert set(mine.values()) | set(theirs.values()) <= at_home


def test_a_mirror_that_is_lost_in_a_pass_leaves_home_whole(tmp_path):
    chance = random.Random(SEED)
    print(f"seed {SEED}")  # noqa: T201
    with pair(tmp_path) as two:
        whole = set(mess(two.home, chance, "first").values())
        end = two.end
        closer = threading.Timer(0.02, two._aways[0].close)
        closer.start()
        with contextlib.suppress(GPULeaseError):  # "companion_gone", if it was quick enough
            end.sync()
        closer.join()
        assert {what for what in visible(two.home).values() if what is not None} == whole
        assert not list(two.home.glob(f"{STAGING}*"))


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d"])
ACTS = st.lists(
    st.tuples(st.sampled_from(["home", "away"]), st.sampled_from(["write", "delete", "mkdir"]),
              NAMES, st.integers(0, 5)),
    max_size=6,
)  # fmt: skip


def act(root: Path, what: str, name: str, content: int) -> None:
    """Do one thing as a person does; what cannot be done is not done."""
    path = root / name
    if what == "write" and not path.is_dir() and all(
        p.is_dir() or not p.exists() for p in path.parents if p.is_relative_to(root)
    ):  # fmt: skip
        write(path, str(content))
    elif what == "delete" and path.is_file():
        path.unlink()
    elif what == "delete" and path.is_dir() and not list(path.iterdir()):
        path.rmdir()
    elif what == "mkdir" and not path.exists() and path.parent.is_dir():
        path.mkdir()


@settings(max_examples=draws(6))
@given(st.lists(ACTS, min_size=1, max_size=4))
def test_two_real_directories_end_equal_with_every_new_content(rounds):
    with tempfile.TemporaryDirectory() as directory, pair(Path(directory)) as two:
        for acts in rounds:
            base = tree(two.home)
            for side, what, name, content in acts:
                act(two.home if side == "home" else two.away, what, name, content)
            mine, theirs = tree(two.home), tree(two.away)
            two.sync()
            found = tree(two.home)
            assert found == tree(two.away)
            for changed in (mine, theirs):
                news = {c for p, c in changed.items() if c is not None and base.get(p) != c}
                assert news <= set(found.values())


def test_a_write_right_after_a_look_is_seen_although_size_and_time_are_the_same(tmp_path):
    scanner = Scanner(tmp_path)
    path = write(tmp_path / "x", "aaaa")
    scanner.scan(Rules())
    found = path.stat()
    with path.open("r+b") as file:
        file.write(b"bbbb")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert set(scanner.scan(Rules()).changed) == {"x"}


def test_what_cannot_be_read_is_named(tmp_path):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        write(root / "open", "x").chmod(0o644)
        write(root / "closed", "x").chmod(0)
        write(root / "d/in", "x")
        (root / "d").chmod(0)
        seen: list[object] = []

        def look() -> None:
            if is_root():  # this thread alone reads as somebody else
                ctypes.CDLL(None).setfsuid(65534)
            seen.append(Scanner(root).scan(Rules()))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        (root / "d").chmod(0o700)
        (found,) = seen
        assert {(left.path, left.why) for left in found.left} == {  # type: ignore[attr-defined]
            ("closed", "unreadable"), ("d", "unreadable"),
        }  # fmt: skip
        assert set(found.manifest) == {"open", "closed", "d"}  # type: ignore[attr-defined]
        assert found.manifest["d"].kind is Kind.LEFT_OUT  # type: ignore[attr-defined]
