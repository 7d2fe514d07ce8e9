"""Every page in German and French: nothing English is left, and axe-core knows the language."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from gpulease.policy.reasons import WAITING
from gpulease.service.languages import LANGUAGES, catalogue, po_catalogue
from gpulease.texts import Text
from tests.browser.test_accessible import PAGES, SHOWS_DATA, busy_stage  # noqa: F401 - a fixture
from tests.pages.stage import Stage, lease

pytestmark = pytest.mark.browser
OTHERS = [language for language in LANGUAGES if language != "en"]
#: Shown text and what is read out, with the values of fields left out: those are people's own.
SHOWN = """() => [document.title, document.body.innerText,
  ...[...document.querySelectorAll('[aria-label], [placeholder], [title]')].flatMap(
    (e) => [e.ariaLabel, e.placeholder, e.title])].filter(Boolean).join('\\n')"""

SAYS = f"(words) => ({SHOWN})().replace(/\\s+/g, ' ').includes(words)"


def english(language: str) -> set[str]:
    """Return the texts of three words and more that this language has other words for."""
    return {
        text
        for message in po_catalogue(language)
        if message.id
        for text in (message.id if isinstance(message.id, tuple) else (message.id,))
        if len(text.split()) > 2 and "{" not in text and catalogue(language).gettext(text) != text
    }


@pytest.mark.parametrize("language", OTHERS)
def test_no_english_is_left_on_any_page(
    busy_stage: Stage,  # noqa: F811
    chromium: Any,
    language: str,
    assert_accessible: Callable[..., None],
) -> None:
    sentence, step = WAITING["no_capacity"]
    mine = {"sentence": Text(sentence), "next_step": Text(step)}
    busy_stage.audit[0]["sentence"] = Text(busy_stage.audit[0]["sentence"])
    for known in list(busy_stage.leases.values()):
        busy_stage.put(lease(**{**known, **mine, "end": known["end"]}))  # type: ignore[arg-type]
    context = chromium.new_context(locale=language)
    try:
        page = context.new_page()
        for path in (each for each in PAGES if not each.startswith("guide/")):  # in English
            page.goto(busy_stage.url + path)
            page.wait_for_selector(SHOWS_DATA)
            if path in {"", "card", "admin"}:
                page.wait_for_function(SAYS, arg=catalogue(language).gettext(sentence))
            shown = " ".join(page.evaluate(SHOWN).split())
            assert page.locator(f'html[lang="{language}"]').count() == 1
            assert not [text for text in english(language) if text in shown], path
        assert_accessible(page)  # the language is the page's own, the rest is as in English
    finally:
        context.close()


def test_the_language_is_a_choice_that_stays(stage: Stage, page: Any) -> None:
    page.goto(stage.url)
    assert page.inner_text("h1") == "My GPU"
    page.select_option("#gl-language", "fr")
    page.wait_for_selector('html[lang="fr"] >> text=Mon GPU')
    page.wait_for_selector("text=2 sur 2 disponibles")
    other = page.context.new_page()
    other.goto(stage.url + "card")
    other.wait_for_selector('html[lang="fr"] >> text=Demander un GPU')
    page.select_option("#gl-language", "en")
    page.wait_for_selector('html[lang="en"] >> text=My GPU')


def test_numbers_and_times_are_written_as_the_language_does(stage: Stage, chromium: Any) -> None:
    stage.classes[0].update(memory=int(1.5 * 2**30), price=1.5)  # type: ignore[call-arg]
    stage.put(lease("queued", position=2, expected_start="2050-01-02T15:04:00+00:00"))
    context = chromium.new_context(locale="de-DE", timezone_id="Europe/Berlin")
    page = context.new_page()
    page.goto(stage.url)
    page.wait_for_selector("[data-state=queued]")
    assert re.search(
        r"Erwartet\s+in etwa [\d.]+ Tagen \(2\. Jan\.? 16:04\)", page.inner_text("#leases")
    )
    context.close()
