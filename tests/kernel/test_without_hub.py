"""What a notebook says where there is no hub: how to get a GPU there, and nothing about leases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.parts import HomeKernel

pytestmark = pytest.mark.processes


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[HomeKernel]:
    started = HomeKernel(tmp_path / "kernel", {})
    try:
        started.run("%load_ext gpulease")
        yield started
    finally:
        started.stop()


def test_the_way_without_a_hub_is_named(kernel: HomeKernel) -> None:
    status = kernel.run("%gpu")
    assert "%gpu connect local" in status.text()
    assert "asks for one by itself" not in status.text()
    assert "%gpu connect local" in kernel.run("%gpu keep").error
    refused = kernel.run("%gpu on")
    assert "%gpu connect local" in refused.traceback
    set_here = kernel.run("%gpu config class a100").text()
    assert "class: a100;" in set_here
    assert "no hub here to ask" in set_here
    assert kernel.run("1 + 1").result == "2", "cells still run here"


def test_a_companion_without_a_lease_has_nothing_to_keep(kernel: HomeKernel) -> None:
    assert kernel.run("%gpu connect local").ok
    assert "no time limit" in kernel.run("%gpu keep").error
    assert kernel.run("%gpu return").ok


def test_what_nobody_is_asked_for_is_said_once(kernel: HomeKernel) -> None:
    assert kernel.run("%gpu connect local").ok
    assert "no effect" not in kernel.run("%%gpu --wait 5m\n1").shown()
    cell = kernel.run("%%gpu --class a100 --for 30m\n1")
    assert "--class and --for have no effect here" in cell.shown()
    assert cell.result == "1"
    assert "no effect" not in kernel.run("%%gpu --class a100 --for 30m\n1").shown()
    assert "--count has no effect here" in kernel.run("%%gpu --count 2\n1").shown()


def test_a_directory_is_no_connection_file(kernel: HomeKernel, tmp_path: Path) -> None:
    refused = kernel.run(f"%gpu connect {tmp_path}")
    assert "is a directory" in refused.error
    assert "chmod" not in refused.error
