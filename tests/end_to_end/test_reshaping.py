"""A real notebook keeps running with fewer GPUs, and gets the others back on request."""

import asyncio
from collections.abc import Iterator

import pytest
import yaml

from gpulease.demo.browse import Browser
from tests.browser.demo import RunningDemo, in_a_thread, put, running_demo
from tests.end_to_end.people import ENOUGH, LONG, WORK, Person, at_work
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with three simulated GPUs, which all share alike."""
    with running_demo(tmp_path_factory.mktemp("demo"), "--gpus", "3") as found:
        found.prepare(idle=600, quiet=600, warning=3, warm_up=1)
        found.put_policy(time_outs={"minimum_runtime": 1}, projects={"all": {"everyone": True}})
        in_a_thread(several_at_once(found))
        yield found


async def several_at_once(demo: RunningDemo) -> None:
    """Let a request have all three."""
    async with Browser(demo.url) as admin:
        await admin.log_in("admin", "admin")
        await admin.open_service()
        policy = yaml.safe_load((await admin.service_api("GET", "policy"))["text"])
        for gpu_class in policy["classes"].values():
            gpu_class["max_count"] = 3
        await put(admin, policy)


async def has(person: Person, count: int) -> dict[str, object]:
    """Wait until a person has so many GPUs."""

    def there() -> bool:
        lease = person.watch.lease
        return lease is not None and (lease["state"], lease["count"]) == ("active", count)

    await wait_for_async(there, LONG, f"{count} GPUs; {person.watch.lease}")
    assert person.watch.lease is not None
    return person.watch.lease


def test_a_notebook_goes_on_with_fewer_gpus_and_grows_at_its_persons_word(shared: RunningDemo):
    async def test():
        async with at_work(shared, "student") as first, at_work(shared, "student2") as second:
            await first.run("seen = []")
            await first.run("%gpu request --count 3 --min-count 1")
            lease = await has(first, 3)
            await first.run("%%gpu\nimport os\nkept = [1, 2, 3]\nprint(os.getpid())")
            await second.run("%gpu request")
            smaller = await has(first, 2)
            assert smaller["id"] == lease["id"]
            assert smaller["asked_count"] == 3
            await has(second, 1)
            # Its next GPU cell runs on what it has, with what it had.
            told = await first.run("%%gpu\nkept.append(4)\nprint(kept)")
            assert "[1, 2, 3, 4]" in told.text
            assert smaller["upgrade"] is None
            await second.return_gpu()

            def offered() -> bool:
                lease = first.watch.lease
                return lease is not None and lease["upgrade"] is not None

            await wait_for_async(offered, LONG, "the third GPU is offered")
            await first.is_told("%gpu upgrade")
            assert first.watch.lease["count"] == 2, "it grows on its person's word only"
            await first.run("%gpu upgrade")
            whole = await has(first, 3)
            assert (whole["id"], whole["asked_count"]) == (lease["id"], 0)
            assert "[1, 2, 3, 4]" in (await first.run("%%gpu\nprint(kept)")).text

    asyncio.run(test())


def test_a_run_gives_a_person_one_of_its_gpus_and_goes_on_with_the_others(shared: RunningDemo):
    shared.write_notebook("student2", "many.ipynb", ["kept = []", *WORK, "print(kept)"])

    async def test():
        async with Browser(shared.url) as other, at_work(shared, "student") as person:
            await other.log_in("student2", "student2")
            await other.open_service()
            asked = {"notebook": "many.ipynb", "count": 3, "min_count": 1}
            (run,) = (await other.service_api("POST", "runs", asked))["items"]

            async def of_run() -> list[dict]:
                leases = (await other.service_api("GET", "leases"))["items"]
                return [each for each in leases if each["server"] == run["server"]]

            async def of_person() -> object:
                return await other.service_api("GET", f"runs/{run['id']}"), person.watch.lease

            def lease_with(count: int):
                async def there() -> bool:
                    leases = await of_run()
                    found = [(each["state"], each["count"]) for each in leases]
                    assert found == [("active", count)], (leases, await of_person())
                    return True

                return there

            await wait_for_async(lease_with(3), LONG, "it has all three", every=0.5)
            await person.run("%gpu request")
            await has(person, 1)
            await wait_for_async(lease_with(2), LONG, "it goes on with two", every=0.5)
            (shared.home("student2") / ENOUGH).touch()

            async def ended() -> dict | None:
                found = await other.service_api("GET", f"runs/{run['id']}")
                return found if found["state"] == "ended" else None

            done = await wait_for_async(ended, LONG, "it ended", every=1.0)
            assert (done["outcome"], done["attempt"]) == ("succeeded", 1), done
            told = (await other.service_api("GET", f"runs/{run['id']}/events"))["items"]
            whats = [each["what"] for each in told]
            assert (whats.count("gpu"), whats.count("gpu_changed")) == (1, 1), told
            (changed,) = [each for each in told if each["what"] == "gpu_changed"]
            assert changed["note"] == "Somebody with priority needed some of its GPUs."

    asyncio.run(test())
