"""One running demo for a module: real hub, proxy, service, servers and kernels."""

from collections.abc import Iterator

import pytest

from tests.browser.demo import RunningDemo, running_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with one simulated GPU; a lease that nobody uses is warned after 20 s."""
    directory = tmp_path_factory.mktemp("demo")
    options = ("--gpus", "1", "--idle", "20", "--warning", "3", "--warm-up", "1")
    with running_demo(directory, *options) as found:
        yield found
