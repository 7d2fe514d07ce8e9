"""A notebook that a fall-back serves moves to the class that was asked for at its person's word."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.browser.demo import RunningDemo, running_demo
from tests.end_to_end.people import LONG, Person, at_work
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with two cards of two kinds: the small one serves where the large one is taken."""
    kinds = ("--gpus", "2", "--gpu-name", "Large,Small")
    with running_demo(tmp_path_factory.mktemp("demo"), *kinds) as found:
        found.prepare(idle=600, quiet=600, warning=3, warm_up=1)
        found.put_policy(classes={"large": {"pool": "large", "fallback": ["small"]}})
        yield found


async def holds(person: Person, gpu_class: str) -> dict[str, object]:
    """Wait until a person has a GPU of a class."""

    def there() -> bool:
        lease = person.watch.lease
        return lease is not None and (lease["state"], lease["gpu_class"]) == ("active", gpu_class)

    await wait_for_async(there, LONG, f"one of {gpu_class}; {person.watch.lease}")
    assert person.watch.lease is not None
    return person.watch.lease


def test_a_notebook_moves_to_the_class_that_was_asked_for(shared: RunningDemo):
    async def test():
        async with at_work(shared, "student") as first, at_work(shared, "student2") as second:
            await first.run("%gpu request --class large")
            await holds(first, "large")
            await second.run("table = {'home': 1}")
            await second.run("%gpu request --class large")
            given = await holds(second, "small")
            assert given["asked_class"] == "large"
            assert "large was full: you got small." in given["sentence"]
            await second.run("%%gpu\nimport os\nkept = [1, 2, 3]\ntable['pid'] = os.getpid()")
            assert second.watch.lease["upgrade"] is None
            await first.return_gpu()

            def offered() -> bool:
                lease = second.watch.lease
                return lease is not None and lease["upgrade"] is not None

            await wait_for_async(offered, LONG, "the class that was asked for is offered")
            wish = second.watch.lease["upgrade"]
            assert (wish["gpu_class"], wish["count"]) == ("large", 1)
            await second.is_told("%gpu upgrade")
            assert second.watch.lease["gpu_class"] == "small", "it moves at its person's word only"
            await second.run("%gpu upgrade")
            moved = await holds(second, "large")
            assert (moved["id"], moved["asked_class"]) == (given["id"], "")
            assert moved["devices"] != given["devices"]
            told = await second.run(
                "%%gpu\nprint(kept, table['home'], table['pid'] == os.getpid())"
            )
            assert "[1, 2, 3] 1 False" in told.text

    asyncio.run(test())
