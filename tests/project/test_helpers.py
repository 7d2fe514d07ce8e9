"""The suite's own helpers: waiting, and skips that fail when everything is required."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import WaitedTooLongError, process_is_gone, wait_for, wait_for_async

ROOT = Path(__file__).parents[2]


def test_wait_for_returns_the_first_truthy_value():
    values = iter([0, None, 7])
    assert wait_for(lambda: next(values)) == 7


def test_wait_for_says_what_it_waited_for_and_what_it_saw():
    with pytest.raises(WaitedTooLongError, match=r"the moon.*last value 0"):
        wait_for(lambda: 0, seconds=0.05, what="the moon")


def test_an_assertion_in_the_condition_means_not_yet():
    seen = []

    def third_time() -> bool:
        seen.append(1)
        assert len(seen) >= 3, "too early"
        return True

    assert wait_for(third_time)


def test_wait_for_async_takes_coroutines():
    import asyncio

    async def answer() -> int:
        return 3

    assert asyncio.run(wait_for_async(answer)) == 3


def test_an_ended_process_is_gone_and_a_living_one_is_not():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert not process_is_gone(child.pid)
    child.communicate(b"\n")
    assert process_is_gone(child.pid)


@pytest.mark.nightly
@pytest.mark.parametrize(("require", "status"), [("0", 0), ("1", 1)])
def test_a_skip_for_want_of_a_program_fails_only_when_all_is_required(tmp_path, require, status):
    suite = tmp_path / "tests"
    # All that the two packages import, whatever that is by now, without the tests.
    for package in ("tests", "testcluster"):
        (tmp_path / package).mkdir()
        for module in (ROOT / package).glob("*.py"):
            if not module.name.startswith("test_"):
                shutil.copy(module, tmp_path / package)
    (suite / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.browser\ndef test_page():\n    pytest.skip('no screen')\n"
    )
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env={**os.environ, "GPULEASE_REQUIRE_ALL": require},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    if require == "0":
        assert "1 tests skipped for want of Chromium" in done.stdout
        assert "make setup-system" in done.stdout
