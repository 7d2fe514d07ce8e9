"""The notebook server's line to a lease service that hangs up."""

import asyncio
import gc
import warnings

from gpulease.lab.upstream import Upstream
from tests.companion.parts import SERVER_TOKEN, LeaseService
from tests.helpers import wait_for_async


def test_a_service_that_hangs_up_leaves_no_half_open_connection():
    async def test():
        service = LeaseService()
        links: list[bool] = []
        upstream = Upstream(service.url, SERVER_TOKEN, lambda _event: None, links.append)
        running = asyncio.ensure_future(upstream.run())
        try:
            await wait_for_async(lambda: service.readers, 30, "the events channel")
            service.readers[0].close()
            await wait_for_async(lambda: links[:3] == [True, False, True], 30, "a new channel")
        finally:
            upstream.close()
            await running
            await service.stop()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(test())
        gc.collect()
    assert not [each for each in said if "Unclosed" in str(each.message)]
