"""The suite's own rules: what is skipped for want of a program is named, counted and may fail.

Markers `browser`, `compiler`, `postgresql` and `gpu` (pyproject.toml) skip a test whose program is
missing;
`cluster` one that `make test-cluster` runs in a session of its own, `nightly` one that only
`make test-nightly` runs.
With GPULEASE_REQUIRE_ALL=1 such a skip fails instead, except for `gpu`, which nobody can install.
"""

import gc
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from testcluster import VARIABLE as GPULEASE_CLUSTER
from testcluster.fixtures import cluster, namespace, why_no_cluster
from tests import logs
from tests.helpers import NIGHTLY, chromium_path, draws, postgresql_bin
from tests.spread import ByUnit, turn_of

INSTALLABLE = {"browser": "Chromium", "compiler": "a C compiler", "postgresql": "PostgreSQL"}
if os.environ.get(GPULEASE_CLUSTER):
    INSTALLABLE["cluster"] = "a test cluster"
__all__ = ["cluster", "namespace"]  # fixtures for every room
REQUIRE_ALL = os.environ.get("GPULEASE_REQUIRE_ALL") == "1"
#: End of reasons that may be given all the same: what is built beside a cluster when there is time
#: left.
MAY_LACK = "is not built (make setup-cluster)"

#: Seconds for a test with a cluster that says nothing else: it waits for several programs.
CLUSTER_SECONDS = 600
# How long an example takes says something of the machine, nothing of the code. The suite draws the
# same few examples each time, so that it fails for a change; at night it draws many new ones.
settings.register_profile(
    "gpulease", deadline=None, derandomize=not NIGHTLY, max_examples=draws(25)
)
settings.load_profile("gpulease")

# A shell starts what runs in its background with interrupts ignored, and children inherit that; the
# suite interrupts itself and its kernels.
signal.signal(signal.SIGINT, signal.default_int_handler)


def missing_programs() -> dict[str, str]:
    """Return marker -> why its tests cannot run here."""
    missing = {}
    if chromium_path() is None:
        missing["browser"] = "Chromium is not installed"
    if shutil.which("gcc") is None:
        missing["compiler"] = "gcc is not installed"
    if postgresql_bin() is None:
        missing["postgresql"] = "PostgreSQL is not installed"
    if not Path("/dev/nvidiactl").exists():
        missing["gpu"] = "no NVIDIA driver on this machine"
    if no_cluster := why_no_cluster():
        missing["cluster"] = no_cluster
    return missing


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the suite without looking for garbage in it, neither now nor while it runs.

    Each worker makes a million objects here, and all of them stay until it ends.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not NIGHTLY:
        put_off = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=put_off)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    missing = missing_programs()
    for item in items:
        for marker, why in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=why))
        if item.get_closest_marker("cluster") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CLUSTER_SECONDS))
    items.sort(key=lambda item: turn_of(item.nodeid))  # stable: the order inside a room stays


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByUnit | None:
    return ByUnit(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(autouse=True, scope="module")
def found_by_the_collector() -> None:
    """Let looks for garbage go through what a file's tests make, not what those before it left.

    A worker comes to have a million objects, and what is tested looks at all of them at times.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_the_process_as_found() -> Iterator[None]:
    """Fail a test that leaves to those after it another interrupt handler, switch interval or log.

    A root logger that is silenced hides what every later test on the same worker looks for.
    """
    root = logging.getLogger()
    found = signal.getsignal(signal.SIGINT), sys.getswitchinterval(), root.level
    yield
    left = signal.getsignal(signal.SIGINT), sys.getswitchinterval(), root.level
    handler, interval, level = found
    signal.signal(signal.SIGINT, handler)
    sys.setswitchinterval(interval)
    root.setLevel(level)
    assert left == found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    wanted = [m for m in INSTALLABLE if item.get_closest_marker(m)]
    if report.skipped and not hasattr(report, "wasxfail") and wanted:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.user_properties.append(("wanted", wanted[0]))
        if REQUIRE_ALL and not str(reason).endswith(MAY_LACK):
            report.outcome = "failed"
            report.longrepr = f"GPULEASE_REQUIRE_ALL=1 and this test was skipped: {reason}"
    logs.add_to(report)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counted: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if not isinstance(report, pytest.TestReport):  # a whole module
            continue
        counted.update(value for name, value in report.user_properties if name == "wanted")
    if not counted:
        return
    for marker, number in sorted(counted.items()):
        terminalreporter.write_line(f"{number} tests skipped for want of {INSTALLABLE[marker]}")
    terminalreporter.write_line(
        "`make setup-system` (root, Debian) installs what they need; `make setup-cluster`"
        " what a cluster needs"
    )
