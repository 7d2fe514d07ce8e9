"""Students at one hub with one GPU: queue, servers that stop, a service that is killed."""

import asyncio
import contextlib
import time

import pytest

from gpulease.demo.check import LeaseWatch
from gpulease.errors import GPULeaseError
from tests.browser.demo import RunningDemo
from tests.end_to_end.people import LONG, at_work, server_of, service_of
from tests.helpers import process_is_gone, wait_for_async

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


def test_two_students_and_one_gpu(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as first, at_work(demo, "student2") as second:
            await first.run("values = [1, 2]")
            await first.run("%%gpu\nvalues.append(3)")
            assert first.watch.state == "active"

            waiting = asyncio.ensure_future(second.run("%%gpu\nprint('my turn')"))
            await second.watch.wait_for("queued", seconds=LONG)

            def placed():
                found = second.watch.lease
                return found if found["position"] == 1 and found["reason"] else None

            lease = await wait_for_async(placed, LONG, "the service has placed the request")
            assert lease["reason"] == "no_capacity"
            assert lease["sentence"]
            assert lease["next_step"]
            assert not waiting.done()

            await first.run("%gpu return")
            assert "my turn" in (await waiting).text
            assert "[1, 2, 3]" in (await first.run("print(values)")).text
            assert first.watch.lease["end"]["reason"] == "returned"

    asyncio.run(test())


def test_a_stopped_server_ends_its_lease(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            await student.run("%%gpu\npass")
            held = student.watch.lease["id"]
            await student.browser.stop_server()
            lease = await student.watch.wait_for("ended", seconds=LONG)
            assert lease["id"] == held
            assert lease["end"]["reason"] == "server_gone"
            await student.browser.start_server()  # what leaves the block needs one

            async def free():
                (offer,) = (await student.browser.service_api("GET", "classes"))["items"]
                return offer["free"] == offer["total"]

            await wait_for_async(free, LONG, "the GPU is free again")

    asyncio.run(test())


def test_a_killed_server_ends_its_lease_and_every_process_of_it(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            away = await student.run("%%gpu\nimport os\nprint('pid', os.getpid())")
            companion = int(away.text.split("pid")[1])
            server_of(demo, "student").kill()
            lease = await student.watch.wait_for("ended", seconds=LONG)
            assert lease["end"]["reason"] == "server_gone"
            await wait_for_async(lambda: process_is_gone(companion), LONG, "the companion ended")
            await student.browser.stop_server()  # the hub has yet to notice
            await student.browser.start_server()  # what leaves the block needs one

    asyncio.run(test())


def test_a_killed_service_loses_no_lease_and_stops_no_cell(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student") as student:
            await student.run("kept = 'here'")
            await student.run("%%gpu\nimport time")
            held = student.watch.lease["id"]
            cell = asyncio.ensure_future(student.run("%%gpu\ntime.sleep(3)\nprint(kept, 'ran on')"))
            killed = service_of(demo)
            killed.kill()
            with contextlib.suppress(GPULeaseError):  # the hub's page about what is away
                await student.browser.visit("services/gpulease/")
            # That page was nobody's: the person's own calls to the hub go on.
            made = await student.browser.hub_api("POST", "users/student/tokens", {"expires_in": 60})
            assert made["token"]
            assert "here ran on" in (await cell).text

            def restarted():
                found = service_of(demo)
                return found is not None and found.pid != killed.pid

            await wait_for_async(restarted, LONG, "the hub starts the service again")

            async def same_lease():
                try:
                    found = await student.browser.service_api("GET", "leases?state=live")
                except GPULeaseError as error:
                    raise AssertionError(str(error)) from error
                assert [(each["id"], each["state"]) for each in found["items"]] == [
                    (held, "active")
                ]
                return True

            await wait_for_async(same_lease, LONG, "the same lease is active")
            await student.run("%%gpu\nkept += ' and there'")
            assert "here and there" in (await student.run("print(kept)")).text
            async with LeaseWatch(student.browser) as watch:
                await student.run("%gpu return")
                await watch.wait_for("ended", seconds=LONG)

    asyncio.run(test())


def test_a_service_that_does_not_answer_stops_no_plain_cell(demo: RunningDemo):
    async def test():
        async with at_work(demo, "student2") as student:
            await student.run("value = 20")
            service = service_of(demo)
            service.suspend()
            try:
                began = time.monotonic()
                refused = await student.kernel.execute("%%gpu --wait 3s\nvalue += 1", seconds=LONG)
                assert time.monotonic() - began < 20, "as long as the cell says, and an answer may"
                assert refused.status == "error"
                assert "The lease service does not answer." in refused.error
                assert "This cell waited" in refused.error
                assert (await student.run("value + 1")).text == "21"
            finally:
                service.resume()
            await student.run("%%gpu\nvalue += 2")
            assert "22" in (await student.run("print(value)")).text

    asyncio.run(test())
