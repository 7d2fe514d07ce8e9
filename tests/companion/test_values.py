"""Values and the lease's end: write-behind is no use, and what cannot go home is parked."""

import asyncio
import os
import signal
import stat
from datetime import UTC, datetime, timedelta

from gpulease.transfer.api import Endpoint, KeyPair
from gpulease.transfer.home import HomeSide
from gpulease.transfer.park import read_parked
from tests.companion.parts import Cells, closing, leased
from tests.helpers import process_is_gone, wait_for_async

MEGABYTES = 200


def _endpoint(opened):
    return Endpoint(opened["wire_address"], opened["wire_key"])


def test_a_write_behind_with_no_cell_is_not_use():
    async def test():
        async with leased() as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            values: dict[str, object] = {}
            side = HomeSide(values)
            side.connect(_endpoint(opened), KeyPair(home.wire_public, home.wire_secret.decode()))
            try:
                with closing(Cells(opened["connection"])) as cells:
                    await cells.ready()
                    code = f"import os\nbig = bytearray(os.urandom({MEGABYTES} << 20))"
                    side.before_gpu_cell(code)
                    assert (await cells.run(code))["status"] == "ok"
                    await wait_for_async(lambda: _at_rest(service), 60, "a companion at rest")
                    begun = datetime.now(UTC)
                    side.after_gpu_cell(1)

                    def there():
                        side.commit_pending()
                        return "big" in values

                    await wait_for_async(there, 60, "the value at home")
                    assert len(values["big"]) == MEGABYTES << 20
                    moved = await wait_for_async(lambda: _moved(service, begun), 60, "transfers")
                    assert all(sample["use"] < 0.03 for sample in moved), moved
            finally:
                side.disconnect(died=False)

    asyncio.run(test())


def test_a_gone_server_leaves_parked_values_that_the_next_companion_reads(tmp_path):
    async def test():
        park = tmp_path / "park"
        async with leased(park_dir=str(park)) as (service, lease, home):
            opened = (await home.open("k1"))["ok"]
            assert opened["parked"] == ""
            with closing(Cells(opened["connection"])) as cells:
                await cells.ready()
                assert (await cells.run("x = list(range(5))"))["status"] == "ok"
            lease.tell({"type": "end", "reason": "parent_gone", "park": True})
            assert await lease.ended() == 0
            await wait_for_async(lambda: service.of_type("bye"))
            assert service.of_type("bye")[0]["reason"] == "parent_gone"
        (file,) = park.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with leased(park_dir=str(park)) as (_, _lease, home):
            opened = (await home.open("k1"))["ok"]
            assert opened["parked"] == str(file)
            roots = [root for group in read_parked(str(file)).groups for root in group.roots]
            assert "n:x" in roots

    asyncio.run(test())


def test_a_server_killed_with_kill_9_still_gets_its_values_parked(tmp_path):
    async def test():
        park = tmp_path / "park"
        async with leased(park_dir=str(park)) as (_service, lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"])) as cells:
                await cells.ready()
                await cells.run("x = 1")
            assert lease.process.stdin is not None
            lease.process.stdin.close()  # as when the process that held it is killed
            assert await lease.ended(30) == 0
            assert [file.name for file in park.iterdir()] == ["k1.parked"]
            assert process_is_gone(opened["pid"])

    asyncio.run(test())


def test_a_drain_under_pressure_parks_what_home_does_not_take(tmp_path):
    async def test():
        async with leased(park_dir=str(tmp_path / "park")) as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"])) as cells:
                await cells.ready()
                await cells.run("x = 1\ng = (i for i in [])")
                until = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
                drain = {"type": "drain", "until": until, "reason": "preempted", "park": True}
                service.tell(drain)
                await home.pushed("drain")
                blocker = {"name": "g", "reason": "generator", "sentence": "No.", "size": None}
                await home.call("drained", kernel_id="k1", result="blocked", blockers=[blocker])
                await wait_for_async(lambda: service.of_type("drained"), 60, "drained")
                said = service.of_type("drained")[0]
                assert said["result"] == "parked"
                assert [lost["name"] for lost in said["blockers"]] == ["g"]
            assert (tmp_path / "park" / "k1.parked").exists()

    asyncio.run(test())


def test_nowhere_to_park_is_named_as_a_loss():
    async def test():
        async with leased() as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            os.kill(opened["pid"], signal.SIGSTOP)  # it answers to nothing, so nothing goes home
            service.tell(
                {
                    "type": "drain",
                    "until": (datetime.now(UTC) + timedelta(seconds=1)).isoformat(),
                    "reason": "expired",
                    "park": True,
                }
            )
            await wait_for_async(lambda: service.of_type("drained"), 60, "drained")
            said = service.of_type("drained")[0]
            assert said["result"] == "parked"
            assert "nowhere to park" in said["blockers"][0]["sentence"]

    asyncio.run(test())


def _at_rest(service):
    """The newest sample is of a second in which nothing ran, though a cell ran before it."""
    samples = service.samples()
    assert any(sample["cells"] or sample["use"] > 0.03 for sample in samples), samples
    last = samples[-1]
    assert last["cells"] == 0, f"not at rest: {samples[-4:]}"
    assert last["use"] < 0.02, f"not at rest: {samples[-4:]}"
    return True


def _moved(service, begun):
    """The samples since ``begun``, once one of them says that values moved."""
    since = [s for s in service.samples() if datetime.fromisoformat(s["at"]) > begun]
    return since if any(sample["transfers"] for sample in since) else None
