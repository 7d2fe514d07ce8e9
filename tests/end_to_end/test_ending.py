"""However the demo is ended, no process of it is left: not even what a cell started by itself.

Ctrl-C is tried on the demo that other modules have used: ``test_interrupted``.
"""

import asyncio
import signal

import pytest

from tests.browser.demo import running_demo
from tests.end_to_end.people import end_and_see, with_a_runaway

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_nothing_is_left(how, tmp_path):
    with running_demo(tmp_path, "--gpus", "1") as demo:
        running = asyncio.run(with_a_runaway(demo))
        end_and_see(demo, how, running)
