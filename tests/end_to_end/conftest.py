"""One running demo for all modules of a worker: real hub, proxy, service, servers and kernels."""

from collections.abc import Iterator

import pytest

from tests.browser.demo import RunningDemo, running_demo


@pytest.fixture(scope="session")
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with one simulated GPU."""
    with running_demo(tmp_path_factory.mktemp("demo"), "--gpus", "1") as found:
        yield found


@pytest.fixture(scope="module")
def demo(shared_demo: RunningDemo) -> RunningDemo:
    """The demo with everybody's server stopped; nothing is reclaimed however slow a test is."""
    shared_demo.prepare(idle=600, warning=3, warm_up=1)
    return shared_demo
