"""What the extension costs JupyterLab: its script's time while Lab starts, and its bytes.

A real Chromium opens Lab through the hub, with an empty cache each time, under the browser's own
sampling profiler.  Counted is every sample in whose stack the extension's code is.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, CDPSession, async_playwright

from benchmarks.measure import Aim, Variants, progress, report
from benchmarks.stack import hub
from gpulease.demo.options import DemoOptions
from tests.helpers import chromium_path

BUNDLE = Path(sys.prefix, "share/jupyter/labextensions/gpulease")
OURS = "lab/extensions/gpulease/"
SCRIPT, READY = "the extension's script", "Lab, to its first cell"
SAMPLING = 200  # microseconds
LONG = 120_000  # ms
USER = "student"


async def measure(rounds: int, scale: float) -> dict[str, Any]:  # noqa: ARG001
    """Return how long the extension's code ran while Lab started, and how large it is."""
    variants = Variants()
    with hub(gpus=1) as options:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium_path(), args=["--headless=new", "--no-sandbox"]
            )
            await _start(browser, options, None)  # the server starts, Lab's files are read once
            for number in range(rounds):
                progress(f"  round {number + 1}")
                await _start(browser, options, variants)
            await browser.close()
    size = sum(path.stat().st_size for path in (BUNDLE / "static").glob("*.js"))
    script = variants.summaries()[SCRIPT]["median"]
    aims = [
        Aim("script while Lab starts, ms", round(script * 1000, 1), 30.0),
        Aim("all its scripts, kB", round(size / 1000, 1), 100.0),
    ]
    return report("lab", variants, aims, bytes=size)


async def _start(browser: Browser, options: DemoOptions, variants: Variants | None) -> None:
    """Open Lab once in a new profile."""
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(LONG)
    await page.goto(f"{options.url}hub/login")
    await page.fill("#username_input", USER)
    await page.fill("#password_input", USER)
    await page.click("#login_submit")
    await page.wait_for_url("**/hub/home")
    await page.goto(f"{options.url}hub/spawn/{USER}")
    await page.wait_for_url(f"**/user/{USER}/lab**")
    profiler = await context.new_cdp_session(page)
    await profiler.send("Profiler.enable")
    await profiler.send("Profiler.setSamplingInterval", {"interval": SAMPLING})
    await profiler.send("Profiler.start")
    began = asyncio.get_running_loop().time()
    await page.goto(f"{options.url}user/{USER}/lab?reset")
    await page.wait_for_selector(".jp-Notebook .jp-Cell, .jp-Launcher")
    ready = asyncio.get_running_loop().time() - began
    await page.wait_for_selector(".gpulease-status-item")
    seconds = await _ours(profiler)
    await context.close()
    if not seconds:
        raise RuntimeError("nothing of the extension was seen: has its address changed?")
    if variants is not None:
        variants.add(SCRIPT, seconds)
        variants.add(READY, ready)


async def _ours(profiler: CDPSession) -> float:
    """Stop the profiler; return the seconds of samples in which the extension was on the stack."""
    profile = (await profiler.send("Profiler.stop"))["profile"]
    parents = {child: node["id"] for node in profile["nodes"] for child in node.get("children", ())}
    own = {node["id"] for node in profile["nodes"] if OURS in node["callFrame"]["url"]}

    def within(node: int | None) -> bool:
        while node is not None:
            if node in own:
                return True
            node = parents.get(node)
        return False

    found = {node["id"]: within(node["id"]) for node in profile["nodes"]}
    spent = zip(profile["samples"], profile["timeDeltas"], strict=True)
    microseconds: int = sum(delta for node, delta in spent if found[node])
    return microseconds / 1e6
