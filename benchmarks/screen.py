"""What a person feels at the page: from a change to the screen, and from a click to its answer.

The service runs in a process of its own with 1,000 open event streams; one of its pages is open
in a real Chromium.  The streams are this process, and what they take of the machine counts.  A
round is a request that another client makes and takes back, then one by a click on the page.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright

from benchmarks.measure import Aim, Variants, percentile, progress, report
from tests.helpers import chromium_path
from tests.service.crowd import Crowd, Person, crowd

PEOPLE, STREAMS = 100, 1000
SCREEN, CLICK = "a change, to the screen", "a click, to its answer on the screen"
LONG = 120_000  # ms

#: Notes when the page first shows a lease after it showed none, and when somebody clicked.
WATCH = """() => {
    const leases = document.getElementById("leases");
    window.seen = {};
    new MutationObserver(() => {
        if (leases.querySelector("[data-state=queued], [data-state=starting], [data-state=active]"))
            window.seen.shown ??= Date.now();
    }).observe(leases, {childList: true, subtree: true, attributes: true});
    document.addEventListener("click", () => { window.seen.clicked = Date.now(); }, true);
}"""
NONE = "() => !document.querySelector('#leases [data-state]:not([data-state=ended])')"


async def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Return the seconds of both, and what the service has of memory meanwhile."""
    streams = int(STREAMS * scale)
    variants = Variants()
    with tempfile.TemporaryDirectory() as made:
        async with crowd(Path(made), PEOPLE) as people, async_playwright() as playwright:
            await people.watch(streams)
            progress(f"  {streams} streams are open")
            browser = await playwright.chromium.launch(
                executable_path=chromium_path(), args=["--headless=new", "--no-sandbox"]
            )
            context = await browser.new_context()
            person = people.people[0]
            await context.add_cookies([{**person.cookie, "url": people.url}])  # type: ignore[typeddict-item]
            page = await context.new_page()
            page.set_default_timeout(LONG)
            await page.goto(people.url)
            await page.wait_for_selector("#ask-form")
            await page.evaluate(WATCH)
            for number in range(rounds):
                progress(f"  round {number + 1}")
                variants.add(SCREEN, await _told(page, people, person))
                variants.add(CLICK, await _clicked(page, people, person))
            most = people.memory
            await browser.close()
    aims = [
        Aim(f"p95 of {name}, ms", round(percentile(variants.seconds[name], 0.95) * 1000), bound)
        for name, bound in ((SCREEN, 250.0), (CLICK, 100.0))
    ]
    aims.append(Aim("memory of the service, MB", round(most / 1e6, 1), 150.0))
    return report("screen", variants, aims, streams=streams)


async def _told(page: Page, people: Crowd, person: Person) -> float:
    """Return the seconds from another client's request, before it is sent, to the screen."""
    began = await page.evaluate("() => { window.seen = {}; return Date.now(); }")
    await people.asks(person)
    return await _shown(page, people, person, began)


async def _clicked(page: Page, people: Crowd, person: Person) -> float:
    """Return the seconds from the click on the page to what it brought, on the screen."""
    await page.evaluate("() => { window.seen = {}; }")
    await page.click("[data-action=ask]")
    return await _shown(page, people, person, None)


async def _shown(page: Page, people: Crowd, person: Person, began: float | None) -> float:
    await page.wait_for_function("() => window.seen.shown")
    seen = await page.evaluate("() => window.seen")
    await people.gives_back(person)
    await page.wait_for_function(NONE)
    await page.wait_for_selector("[data-action=ask]:not([disabled])")
    since: float = seen["clicked"] if began is None else began
    shown: float = seen["shown"]
    return (shown - since) / 1000
