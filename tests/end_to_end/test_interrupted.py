"""Ctrl-C ends a demo that was used for minutes: the last module that shares it (``spread``)."""

import asyncio
import signal

import pytest

from tests.browser.demo import RunningDemo
from tests.end_to_end.people import end_and_see, with_a_runaway

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


def test_nothing_is_left(demo: RunningDemo) -> None:
    running = asyncio.run(with_a_runaway(demo))
    end_and_see(demo, signal.SIGINT, running)
