"""Three people share one card: 70 % becomes 40 % for others, and grows at its person's word."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.browser.demo import RunningDemo, running_demo
from tests.end_to_end.people import LONG, Person, at_work
from tests.helpers import wait_for_async

pytestmark = [pytest.mark.site, pytest.mark.timeout(600)]

POOL = "simulated-gpu"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with one card of tenths, of which 40 % are guaranteed to the course."""
    with running_demo(tmp_path_factory.mktemp("demo"), "--gpus", "1") as found:
        found.prepare(idle=600, quiet=600, warning=3, warm_up=1)
        found.put_policy(
            time_outs={"minimum_runtime": 1},
            pools={POOL: {"evidence": "process", "parts": 10}},
            classes={
                "large": {"pool": POOL, "parts": 7, "steps": [4]},
                "small": {"pool": POOL, "parts": 4},
            },
            projects={
                "course": {"group": "cs101", "pools": {POOL: {"guarantee": 4}}},
                "others": {"everyone": True},
            },
        )
        yield found


async def has(person: Person, percent: int) -> dict[str, object]:
    """Wait until a person has so much of a card."""

    def there() -> bool:
        lease = person.watch.lease
        found = lease and (lease["state"], lease["count"], lease.get("percent"))
        return found == ("active", 1, percent)

    await wait_for_async(there, LONG, f"{percent}% of a card; {person.watch.lease}")
    assert person.watch.lease is not None
    return person.watch.lease


def test_a_notebook_goes_on_with_less_of_its_card_and_grows_at_its_persons_word(
    shared: RunningDemo,
):
    async def test():
        async with (
            at_work(shared, "instructor") as first,
            at_work(shared, "student") as second,
            at_work(shared, "student2") as third,
        ):
            await first.run("seen = []")
            await first.run("%gpu request --class large --at-least 40%")
            lease = await has(first, 70)
            card = lease["devices"]
            assert [each["uuid"] for each in card] == ["SIM-0000"]
            await first.run("%%gpu\nimport os\nkept = [1, 2, 3]\nseen.append(os.getpid())")
            await first.is_told("70% of a card")
            await second.run("%gpu request --class small")
            smaller = await has(first, 40)
            assert (smaller["id"], smaller["asked_percent"]) == (lease["id"], 70)
            assert smaller["devices"] == card
            assert "You have 40% of a card, of the 70% that you asked for." in smaller["sentence"]
            assert (await has(second, 40))["devices"] == card
            # Its next GPU cell runs on what it has, with what it had.
            told = await first.run("%%gpu\nkept.append(4)\nseen.append(os.getpid())\nprint(kept)")
            assert "[1, 2, 3, 4]" in told.text
            assert "2 True" in (await first.run("print(len(seen), len(set(seen)) == 2)")).text
            # Two tenths are left: the third waits for the second.
            await third.run("%gpu request --class small")
            await third.watch.wait_for("queued", seconds=LONG)
            assert smaller["upgrade"] is None
            await second.return_gpu()
            await has(third, 40)
            assert first.watch.lease["percent"] == 40
            await third.return_gpu()

            def offered() -> bool:
                lease = first.watch.lease
                return lease is not None and lease["upgrade"] is not None

            await wait_for_async(offered, LONG, "the rest of the card is offered")
            assert first.watch.lease["upgrade"]["percent"] == 70
            await first.is_told("70% of a card")
            assert first.watch.lease["percent"] == 40, "it grows on its person's word only"
            await first.run("%gpu upgrade")
            whole = await has(first, 70)
            assert (whole["id"], whole["asked_percent"]) == (lease["id"], 0)
            assert "[1, 2, 3, 4]" in (await first.run("%%gpu\nprint(kept)")).text

    asyncio.run(test())
