"""Kernels shared by the tests of a module: starting one takes a second."""

from collections.abc import Iterator

import pytest

from tests.kernel.parts import HomeKernel


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
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeKernel]:
    """A home kernel of its own, gpulease not loaded."""
    kernel = HomeKernel(tmp_path_factory.mktemp("fresh"))
    try:
        yield kernel
    finally:
        kernel.stop()
