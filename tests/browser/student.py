"""What the student's page shows, for the tests that look at it."""

from typing import Any


def text_of(page: Any, selector: str) -> str:
    found: str = page.inner_text(selector)
    return " ".join(found.split())


def state_shown(page: Any, state: str, where: str = "#leases") -> None:
    page.wait_for_selector(f'{where} [data-state="{state}"]')
