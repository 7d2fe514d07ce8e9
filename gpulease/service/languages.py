"""The languages of the pages: whose reader wants which, and the texts in it.

The catalogues are gettext's (``locale/*/LC_MESSAGES/gpulease.po``), read as they are written:
nothing has to be compiled for a change of them.
"""

from __future__ import annotations

import gettext
import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from babel import negotiate_locale
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from tornado.httputil import HTTPServerRequest

from gpulease.errors import GPULeaseError
from gpulease.policy.explanation.catalogue import REFUSALS
from gpulease.texts import Text, told

LOCALE = Path(__file__).parent / "locale"
#: What each language is called in itself.
LANGUAGES: Mapping[str, str] = {"en": "English", "de": "Deutsch", "fr": "Français"}
ENGLISH = "en"
#: Holds a person's choice; the browser's own languages decide without it.
COOKIE = "gpulease-language"


def language_of(request: HTTPServerRequest) -> str:
    """Return the language of who asks: as chosen, else the first that the browser wants."""
    chosen = request.cookies.get(COOKIE)
    if chosen is not None and chosen.value in LANGUAGES:
        return chosen.value
    wanted = []
    for place, entry in enumerate(request.headers.get("Accept-Language", "").split(",")):
        name, _, quality = entry.strip().partition(";q=")
        try:
            wanted.append((-float(quality or 1), place, name))
        except ValueError:
            continue  # not a header that a browser sends
    return best_of([name for _, _, name in sorted(wanted)])


def best_of(names: Sequence[str]) -> str:
    """Return the first of these languages that there is; English where there is none of them."""
    return negotiate_locale(names, [*LANGUAGES], sep="-") or ENGLISH


@cache
def po_catalogue(language: str) -> Catalog:
    """Return a language's catalogue as it is written."""
    with (LOCALE / language / "LC_MESSAGES" / "gpulease.po").open("rb") as file:
        return read_po(file, locale=language)


@cache
def catalogue(language: str) -> gettext.NullTranslations:
    """Return a language's texts; English ones are their own."""
    if language == ENGLISH:
        return gettext.NullTranslations()
    compiled = io.BytesIO()
    write_mo(compiled, po_catalogue(language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


@cache
def script(language: str) -> str:
    """Return the texts that scripts use, as a script of their own: text to its forms."""
    found = {}
    for message in po_catalogue(language):
        if message.id and any(place.endswith(".js") for place, _ in message.locations):
            text, forms = message.id, message.string or ""
            name = text if isinstance(text, str) else text[0]
            found[name] = [forms] if isinstance(forms, str) else list(forms)
    return f"globalThis.gpuleaseTexts = {json.dumps(found, ensure_ascii=False)};\n"


def answer_in(language: str, value: Any) -> Any:
    """Return a JSON value as a reader of this language gets it."""
    return value if language == ENGLISH else told(value, catalogue(language))


def problem_in(language: str, problem: GPULeaseError) -> GPULeaseError:
    """Return a refusal as a reader of this language gets it.

    One whose own sentence is in no catalogue is told by what its reason means in general.
    """
    if language == ENGLISH:
        return problem
    texts = catalogue(language)
    sentence, step = problem.sentence, problem.next_step
    if not (isinstance(sentence, Text) and sentence.known(texts)):
        sentence, step = (Text(each) for each in REFUSALS.get(problem.reason, (sentence, step)))
    return GPULeaseError(
        problem.reason,
        told(sentence, texts),
        next_step=told(step, texts),
        numbers=told(problem.numbers, texts),
        status=problem.status,
    )
