"""Pictures of every page, to be looked at: `python -m tests.browser.walk FOLDER [PAGE ...]`.

Each page is shown in each language, at three widths, light and dark, with something to read on it.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpulease.policy.reasons import ACTIVE, ENDED, WAITING
from gpulease.service.languages import LANGUAGES
from gpulease.texts import Text
from tests.browser.conftest import ARGUMENTS
from tests.browser.test_accessible import PAGES, SHOWS_DATA, make_busy
from tests.browser.test_watchers import reserved
from tests.helpers import chromium_path
from tests.pages.stage import Stage, lease

WIDTHS = (1440, 1024, 390)
THEMES = ("light", "dark")
#: What the service would say of a lease, by its state.
SAID = {
    "queued": WAITING["no_capacity"],
    "active": ACTIVE["connected"],
    "warned": ACTIVE["connected"],
    "ended": ENDED["idle"],
}


def furnish(stage: Stage) -> None:
    """Put everything on the stage that a page can show, in words that are translated."""
    make_busy(stage)
    for each in list(stage.leases.values()):
        sentence, step = SAID.get(each["state"], ("", ""))
        words = {"sentence": Text(sentence), "next_step": Text(step)}
        stage.put(lease(**{**each, **words}))  # type: ignore[arg-type]
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    stage.reservations = [
        reserved(noon),
        reserved(noon + timedelta(hours=3), id="r2", name="lab", title="Deep learning"),
    ]


def pictures(browser: Any, stage: Stage, page: str) -> Iterator[tuple[str, bytes]]:
    """Yield a name and a picture for each way in which a page can look."""
    for language in LANGUAGES:
        for theme in THEMES:
            context = browser.new_context(locale=language, color_scheme=theme)
            tab = context.new_page()
            for width in WIDTHS:
                tab.set_viewport_size({"width": width, "height": 900})
                tab.goto(stage.url + page)
                tab.reload()  # an address that differs in its fragment alone loads nothing
                tab.wait_for_selector(SHOWS_DATA)
                tab.wait_for_function("() => document.fonts.status === 'loaded'")
                name = page.replace("#", "-").replace("/", "-").removesuffix(".html") or "mine"
                shot = tab.screenshot(full_page=True, animations="disabled")
                yield f"{name}-{language}-{theme}-{width}", shot
            context.close()


def main(folder: Path, pages: list[str]) -> None:
    """Write the pictures of these pages."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage()
    furnish(stage)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=["--headless=new", *ARGUMENTS]
        )
        for page in pages:
            for name, shot in pictures(browser, stage, page):
                (folder / f"{name}.png").write_bytes(shot)
        browser.close()
    stage.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(PAGES))
