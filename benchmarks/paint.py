"""How soon a student's page is there, and its bytes, in a browser that has nothing cached.

A real Chromium opens *My GPU* through hub and proxy, in a new profile each time.  The hub's own
style and fonts come with every page of the hub, and are counted apart.
"""

from __future__ import annotations

import time
from typing import Any

from playwright.async_api import Browser, StorageState, async_playwright

from benchmarks.measure import Aim, Variants, percentile, progress, report
from benchmarks.stack import hub
from tests.helpers import chromium_path

PAINT, READY = "the first paint", "until a GPU can be asked for"
USER = "student"
PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length > 0"
#: Seconds from the start of the page's load to the first text or picture on the screen.
FIRST = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
#: Bytes over the wire: of the hub's style, fonts and pictures, and of all else.
LOADED = """() => {
    const found = {hub: 0, ours: 0};
    for (const type of ["navigation", "resource"])
        for (const each of performance.getEntriesByType(type))
            found[each.name.includes("/hub/") ? "hub" : "ours"] += each.transferSize;
    return found;
}"""


async def measure(rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Return the seconds until a page is seen and can be used, and its bytes."""
    variants, loaded = Variants(), {"hub": 0, "ours": 0}
    with hub(gpus=1) as options:
        address = f"{options.url}services/gpulease/"
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium_path(), args=["--headless=new", "--no-sandbox"]
            )
            known = await _logged_in(browser, options.url)
            for number in range(rounds):
                progress(f"  round {number + 1}")
                loaded = await _opened(browser, known, address, variants)
            await browser.close()
    slowest = percentile(variants.seconds[PAINT], 0.95)
    aims = [
        Aim("p95 of the first paint, ms", round(slowest * 1000), 1000.0),
        Aim("bytes of the page itself, kB", round(loaded["ours"] / 1e3, 1), 200.0),
    ]
    return report("paint", variants, aims, bytes=loaded)


async def _logged_in(browser: Browser, url: str) -> StorageState:
    """Return the cookies of a student who has been at the hub and at the service."""
    async with await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(f"{url}hub/login?next=%2Fservices%2Fgpulease%2F")
        await page.fill("#username_input", USER)
        await page.fill("#password_input", USER)
        await page.click("#login_submit")
        await page.wait_for_selector("#ask-form")
        return await context.storage_state()


async def _opened(
    browser: Browser, known: StorageState, address: str, variants: Variants
) -> dict[str, int]:
    """Open the page once in a new profile; return the bytes that came for it."""
    async with await browser.new_context(storage_state=known) as context:
        page = await context.new_page()
        began = time.perf_counter()
        await page.goto(address)
        await page.wait_for_selector("#ask-form")
        variants.add(READY, time.perf_counter() - began)
        await page.wait_for_function(PAINTED)
        variants.add(PAINT, await page.evaluate(FIRST))
        found: dict[str, int] = await page.evaluate(LOADED)
        return found
