"""Kernels shared by the tests of a module: starting one takes a second."""

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.kernel.parts import HomeKernel
from tests.kernel.stage import Stage

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


def has_failed(item: pytest.Item) -> bool:
    """Tell whether a test has failed so far."""
    return item.stash.get(_FAILED, False)


class Lent:
    """One kernel process for tests that come one after the other.

    Each test gets it with gpulease not loaded, no variable, and a directory and environment of its
    own.  What a failed test leaves is not lent again.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made = 0
        self._idle: HomeKernel | None = None

    def take(self, directory: Path, env: Mapping[str, str]) -> HomeKernel:
        """Return the kernel, working in ``directory`` with ``env`` added to its environment."""
        if self._idle is None:
            self._made += 1
            self._idle = HomeKernel(self._directory / str(self._made))
        kernel, self._idle = self._idle, None
        directory.mkdir()
        kernel.directory = directory
        # What an earlier test gave goes first: its bus would be a service that has gone away.
        forget = (
            "for each in [k for k in os.environ if k.startswith('GPULEASE_')]: del os.environ[each]"
        )
        given = f"import os\n{forget}\nos.environ.update({dict(env)!r})"
        for line in (f"%cd -q {directory}", given):
            cell = kernel.run(line)
            assert cell.ok, cell.traceback
        return kernel

    def give_back(self, kernel: HomeKernel, *, as_new: bool) -> None:
        """Take everything of gpulease out again, or end a kernel that is not as new."""
        if not as_new:
            kernel.stop()
            return
        for line in ("%unload_ext gpulease", "%reset -f"):
            cell = kernel.run(line)
            assert cell.ok, cell.traceback
        self._idle = kernel

    def stop(self) -> None:
        if self._idle is not None:
            self._idle.stop()


#: Fixtures that are a kernel.
_KERNELS = {"fresh", "home", "kernel", "lent", "pair"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this directory that run in a kernel."""
    if _KERNELS & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.processes)


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lent]:
    """One kernel process that the tests of a module take in turn."""
    found = Lent(tmp_path_factory.mktemp("lent"))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeKernel]:
    """A home kernel with a companion on this machine; cells run at home."""
    kernel = HomeKernel(tmp_path_factory.mktemp("home"))
    try:
        kernel.connect()
        yield kernel
    finally:
        kernel.stop()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """The server's end of a bus, played by the test."""
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def kernel_on_bus(
    stage: Stage, lent: Lent, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[HomeKernel]:
    """A kernel on this test's own bus; a session of its own, the process shared by the module."""
    started = lent.take(tmp_path / "kernel", {"GPULEASE_BUS": str(stage.path)})
    assert started.run("%load_ext gpulease").ok
    wait_for(lambda: stage.kernels, what="the kernel on the bus")
    yield started
    lent.give_back(started, as_new=not has_failed(request.node))


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeKernel]:
    """A home kernel of its own, gpulease not loaded."""
    kernel = HomeKernel(tmp_path_factory.mktemp("fresh"))
    try:
        yield kernel
    finally:
        kernel.stop()
