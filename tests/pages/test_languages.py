"""Texts in other languages: whose reader gets which, and what is told in it."""

import json
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

import gpulease.lab
from gpulease.errors import GPULeaseError
from gpulease.policy import document
from gpulease.policy.explanation.explain import explain
from gpulease.service import languages
from gpulease.service.languages import COOKIE, LANGUAGES, answer_in, language_of, problem_in, script
from gpulease.service.pages.frames import STATIC
from gpulease.sizes import say_day
from gpulease.texts import Text, counted, joined
from tests.pages.stage import Stage
from tests.policy.build import policy
from tests.policy.test_explain import MADE, REACHABLE

LAB = "locale/fr_FR/LC_MESSAGES/gpulease.json"
OTHERS = [language for language in LANGUAGES if language != "en"]


class Connection:
    context = None


def request(accept: str = "", chosen: str = "") -> HTTPServerRequest:
    headers = HTTPHeaders({"Host": "hub"})
    if accept:
        headers["Accept-Language"] = accept
    if chosen:
        headers["Cookie"] = SimpleCookie({COOKIE: chosen}).output(header="").strip()
    return HTTPServerRequest(
        headers=headers,
        start_line=RequestStartLine("GET", "/", "HTTP/1.1"),
        connection=Connection(),
    )


@pytest.mark.parametrize(
    ("accept", "chosen", "language"),
    [
        ("", "", "en"),
        ("de", "", "de"),
        ("de-CH,fr;q=0.9,en;q=0.8", "", "de"),
        ("nl,fr-CA;q=0.9,en;q=0.8", "", "fr"),
        ("en-US,de;q=0.5", "", "en"),
        ("fr;q=0.3,de;q=0.7", "", "de"),
        ("nl", "", "en"),
        ("de;q=much,*", "", "en"),
        ("de", "fr", "fr"),
        ("de", "en", "en"),
        ("de", "../../etc", "de"),
    ],
)
def test_a_choice_counts_before_the_browsers_languages(
    accept: str, chosen: str, language: str
) -> None:
    assert language_of(request(accept, chosen)) == language


def test_a_text_is_english_until_it_is_told_in_another_language() -> None:
    waits = counted("{n} request waits.", "{n} requests wait.", 2)
    assert (waits, counted("{n} day", "{n} days", 1)) == ("2 requests wait.", "1 day")
    assert json.loads(json.dumps({"sentence": waits})) == {"sentence": "2 requests wait."}
    both = joined(Text("You are number {n} in the queue.", n=3), "", "a note of {somebody}")
    assert both == "You are number 3 in the queue. a note of {somebody}"
    told = answer_in("de", {"items": [both], "n": 1, "days": counted("{n} day", "{n} days", 1)})
    assert told == {
        "items": ["Sie sind auf Platz 3 der Warteschlange. a note of {somebody}"],
        "n": 1,
        "days": "1 Tag",
    }
    assert answer_in("fr", Text("")) == ""


def test_a_refusal_without_words_of_its_own_is_told_by_its_reason() -> None:
    own = GPULeaseError("queue_full", Text("You are next."), numbers={"max": 3}, status=429)
    assert problem_in("de", own).sentence == "Sie sind als Nächstes dran."
    assert problem_in("de", own).numbers == {"max": 3}
    general = problem_in("de", GPULeaseError("queue_full", "More than 3 wait.", next_step="Wait."))
    assert general.sentence == "Die Warteschlange ist voll."
    assert general.next_step == "Versuchen Sie es in einigen Minuten noch einmal."
    assert problem_in("de", GPULeaseError("no_such_code", "Odd.")).sentence == "Odd."
    assert problem_in("en", own) is own


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize(("state", "reason"), REACHABLE)
def test_no_english_is_left_of_what_is_said_of_a_lease(
    state: str, reason: str, language: str
) -> None:
    lease = replace(MADE[state], reason=reason, parked=2, blockers=(("x", "z"),))  # type: ignore[index]
    words = explain(lease, policy(), position=2)
    for text in (words.sentence, words.next_step):
        told = answer_in(language, text)
        assert told != text
        # A part that were in no catalogue would stand in both.
        parts = {part.strip() for part in text.split(". ") if len(part.split()) > 2}
        assert not [part for part in parts if part in told], told


@pytest.mark.parametrize("language", OTHERS)
def test_scripts_get_their_texts_with_the_page(stage: Stage, language: str) -> None:
    asked = urllib.request.Request(stage.url, headers={"Accept-Language": language})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        page = answer.read().decode()
    assert f'<html lang="{language}"' in page
    address = next(part for part in page.split('"') if part.endswith(f"/texts/{language}.js"))
    with urllib.request.urlopen(
        stage.url.partition("/services")[0] + address, timeout=20
    ) as answer:
        assert answer.headers["Content-Type"].startswith("text/javascript")
        assert answer.read().decode() == script(language)


def test_no_style_depends_on_a_text() -> None:
    """What is told in another language would lose it."""
    texts = re.compile(r"\[(data-label|aria-label|title|placeholder)[~|^$*]?=")
    assert not texts.findall((STATIC / "gpulease.css").read_text())


@pytest.mark.parametrize("language", OTHERS)
def test_what_is_wrong_with_a_policy_is_told_in_the_language(language: str) -> None:
    text = "pools: {p: {spare: x, other: 1}}\nclasses:\n  t4: {pool: q, memory: 1 foot}\n"
    found = [each.to_json() for each in document.check(f"{text}time_outs: {{idle: 9999d}}\n")]
    assert len(found) == 5
    for english, finding in zip(found, answer_in(language, found), strict=True):
        assert finding["message"] != english["message"]
        assert finding["next_step"] != english["next_step"]
        assert finding["line"] == english["line"]


@pytest.mark.parametrize(
    ("language", "day"),
    [("en", "Tue 03 Mar 2026"), ("de", "Di. 03. März 2026"), ("fr", "mar. 03 mars 2026")],
)
def test_days_have_the_names_of_the_language(language: str, day: str) -> None:
    assert answer_in(language, say_day(datetime(2026, 3, 3, 14, tzinfo=UTC))) == day


def french() -> Iterator[str]:
    """Every French text of the pages and of JupyterLab."""
    with (Path(languages.__file__).parent / "locale/fr/LC_MESSAGES/gpulease.po").open("rb") as file:
        for message in read_po(file):
            forms = message.string
            yield from (forms,) if isinstance(forms, str) else forms
    lab = json.loads((Path(gpulease.lab.__file__).parent / LAB).read_text(encoding="utf-8"))
    for key, forms in lab.items():
        yield from forms if key else ()


def test_french_is_set_as_french_is_and_has_one_word_for_a_lease() -> None:
    """No line may begin with a colon, and an apostrophe is the same one everywhere."""
    setting = r"\w'\w| [:;?!»](?!\w)|« |[}\d] %(?!\w)"
    odd = re.compile(rf"{setting}|\b(bail|baux)\b|\b(une|la|sa) GPU", re.IGNORECASE)
    assert [text for text in french() if odd.search(text)] == []
