"""Values and the lease's end: copying them is no use, and what cannot be copied back is parked."""

import asyncio
import os
import pickle
import signal
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpulease.channel.keys import Endpoint, KeyPair
from gpulease.companion.config import Parking
from gpulease.transfer.home import HomeSide
from tests.companion.parts import Cells, closing, leased
from tests.helpers import process_is_gone, wait_for_async

pytestmark = pytest.mark.processes

MEGABYTES = 200


def parked_names(path: Path) -> set[str]:
    return {name for each in pickle.loads(path.read_bytes()).components for name in each.names}


STUBBORN = """
import pathlib
path = {path!r}
done = [1, 2, 3]
pathlib.Path(path).touch()
while True:
    try:
        while True:
            pass
    except KeyboardInterrupt:
        pass
"""


def _endpoint(opened):
    return Endpoint(opened["wire_address"], opened["wire_key"])


def test_a_value_that_is_copied_back_with_no_cell_is_not_use():
    async def test():
        async with leased() as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            values: dict[str, object] = {}
            side = HomeSide(values)
            side.connect(_endpoint(opened), KeyPair(home.wire_public, home.wire_secret.decode()))
            try:
                with closing(Cells(opened["connection"], home)) as cells:
                    await cells.ready()
                    code = f"import os\nbig = bytearray(os.urandom({MEGABYTES} << 20))"
                    side.before_gpu_cell(code)
                    assert (await cells.run(code))["status"] == "ok"
                    await wait_for_async(lambda: _at_rest(service), 60, "a companion at rest")
                    begun = datetime.now(UTC)
                    side.after_gpu_cell(1)

                    def there():
                        side.commit_pending()
                        if "big" in side.away_names():
                            side.fetch(["big"])
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
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                assert (await cells.run("x = list(range(5))"))["status"] == "ok"
            lease.tell({"type": "end", "reason": "parent_gone", "park": True})
            assert await lease.ended() == 0
            await wait_for_async(lambda: service.of_type("bye"))
            assert service.of_type("bye")[0]["reason"] == "parent_gone"
        file = park / "ada" / "@default" / "k1" / "values"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert {stat.S_IMODE(each.stat().st_mode) for each in file.parents[:3]} == {0o700}
        assert service.of_type("bye")[0]["parked"] == 1
        async with leased(park_dir=str(park)) as (_, _lease, home):
            opened = (await home.open("k1"))["ok"]
            assert opened["parked"] == str(file)
            assert "x" in parked_names(file)

    asyncio.run(test())


def test_a_server_killed_with_kill_9_still_gets_its_values_parked(tmp_path):
    async def test():
        park = tmp_path / "park"
        async with leased(park_dir=str(park)) as (_service, lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                await cells.run("x = 1")
            assert lease.process.stdin is not None
            lease.process.stdin.close()  # as when the process that held it is killed
            assert await lease.ended(30) == 0
            assert (park / "ada" / "@default" / "k1" / "values").exists()
            assert process_is_gone(opened["pid"])

    asyncio.run(test())


def test_a_value_that_cannot_be_parked_in_time_does_not_hold_up_the_end(tmp_path):
    async def test():
        async with leased(park_dir=str(tmp_path / "park")) as (service, lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                await cells.run(
                    "import functools, time\n"
                    "class Slow(functools.partial):\n"  # of compiled code: it is asked
                    "    def __reduce__(self):\n"
                    "        time.sleep(600)\n"
                    "x = Slow(len)"
                )
            lease.process.stdin.close()
            begun = time.monotonic()
            assert await lease.ended(60) == 0
            assert time.monotonic() - begun < 30  # ten, and what a busy machine adds
            assert process_is_gone(opened["pid"])
            await wait_for_async(lambda: service.of_type("bye"))
            assert service.of_type("bye")[0]["parked"] == 0

    asyncio.run(test())


def test_a_disk_that_is_full_leaves_no_half_of_a_parked_file(tmp_path):
    async def test():
        park = tmp_path / "park"
        async with leased(park_dir=str(park)) as (service, lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                # A file that cannot grow is what a full disk is to the one who writes.
                await cells.run(
                    "import resource\n"
                    "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
                    "x = bytes(range(256)) * 4096"
                )
            lease.tell({"type": "end", "reason": "parent_gone", "park": True})
            assert await lease.ended() == 0
            await wait_for_async(lambda: service.of_type("bye"))
            bye = service.of_type("bye")[0]
            assert bye["parked"] == 0
            assert "too large" in bye["blockers"][0]["sentence"]
            assert [each for each in park.rglob("*") if each.is_file()] == []

    asyncio.run(test())


def test_a_drain_under_pressure_parks_what_home_does_not_take(tmp_path):
    async def test():
        async with leased(park_dir=str(tmp_path / "park")) as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
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
                assert said["parked"] == 1
            assert (tmp_path / "park" / "ada" / "@default" / "k1" / "values").exists()

    asyncio.run(test())


def test_what_is_beyond_the_bound_is_named_as_lost(tmp_path):
    async def test():
        limits = {"park_dir": str(tmp_path / "park"), "park_limit": 200_000}
        async with leased(**limits) as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                await cells.run("big = bytes(300_000)\nsmall = bytes(1000)")
                until = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
                drain = {"type": "drain", "until": until, "reason": "expired", "park": True}
                service.tell(drain)
                await home.pushed("drain")
                await home.call("drained", kernel_id="k1", result="blocked", blockers=[])
                await wait_for_async(lambda: service.of_type("drained"), 60, "drained")
                said = service.of_type("drained")[0]
                assert [lost["name"] for lost in said["blockers"]] == ["big"]
                assert "may be parked" in said["blockers"][0]["sentence"]
                assert said["parked"] == 1

    asyncio.run(test())


def test_old_parked_values_are_removed_when_a_lease_starts(tmp_path):
    async def test():
        parking = Parking(str(tmp_path), "ada")
        for kernel_id, age in (("old", 8 * 86400), ("new", 86400)):
            parking.prepare(kernel_id)
            file = parking.file(kernel_id)
            file.write_bytes(b"x")
            os.utime(file, (time.time() - age,) * 2)
        async with leased(park_dir=str(tmp_path)):
            assert not parking.file("old").exists()
            assert parking.file("new").exists()

    asyncio.run(test())


@pytest.mark.parametrize("park", [True, False])
def test_a_cell_that_ignores_its_interrupt_is_killed_after_its_grace_and_what_it_made_is_parked(
    tmp_path, park
):
    async def test():
        async with leased(park_dir=str(tmp_path)) as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                cells.begin(STUBBORN.format(path=str(tmp_path / "stubborn")))
                await wait_for_async(lambda: (tmp_path / "stubborn").exists(), 60, "the cell")
                begun = time.monotonic()
                until = (datetime.now(UTC) + timedelta(seconds=120)).isoformat()
                service.tell(
                    {"type": "drain", "until": until, "reason": "quiet", "park": park,
                     "interrupt_grace": 1.0}
                )  # fmt: skip
                died = await home.pushed("companion_died")
                assert "did not end within 1 s" in died["detail"]
                assert "parked" in died["detail"]
                await wait_for_async(lambda: service.of_type("drained"), 60, "drained")
                assert time.monotonic() - begun < 60
                assert process_is_gone(opened["pid"])
                said = service.of_type("drained")[0]
                assert (said["result"], said["parked"], said["blockers"]) == ("parked", 3, [])
            assert {"done", "path"} <= parked_names(Parking(str(tmp_path), "ada").file("k1"))

    asyncio.run(test())


def test_a_cell_that_ends_at_its_interrupt_keeps_its_companion(tmp_path):
    async def test():
        async with leased(park_dir=str(tmp_path)) as (service, _lease, home):
            opened = (await home.open("k1"))["ok"]
            with closing(Cells(opened["connection"], home)) as cells:
                await cells.ready()
                msg_id = cells.begin("import time; time.sleep(600)")
                await service.cell_seen()
                until = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
                service.tell(
                    {"type": "drain", "until": until, "reason": "quiet", "park": False,
                     "interrupt_grace": 2.0}
                )  # fmt: skip
                assert (await cells.reply(msg_id))["ename"] == "KeyboardInterrupt"
                seen = len(service.samples())
                await wait_for_async(lambda: len(service.samples()) > seen + 4, 60, "the grace")
                assert (await cells.run("1"))["status"] == "ok"
                await home.call("drained", kernel_id="k1", result="done", blockers=[])
                await wait_for_async(lambda: service.of_type("drained"), 60, "drained")
                assert service.of_type("drained")[0]["result"] == "done"

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
