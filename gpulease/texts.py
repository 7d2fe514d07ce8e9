"""Text that people read, with what it was made of, so that it can be shown in another language.

The texts stand in the code in English.  A ``Text`` is that English, a ``str`` like every other; who
shows it to a reader of another language has it made again from the catalogue of that language.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Protocol


class Said:
    """What a schema says of a value, for editors and for the reference."""

    def __init__(self, description: str) -> None:
        self.description = description

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of the value with the description."""
        return {**handler(schema), "description": self.description}


class Catalogue(Protocol):
    """What ``gettext.NullTranslations`` and its kin give."""

    def gettext(self, message: str) -> str:
        """Return the translation, the message itself where there is none."""

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        """Return the translation for a number."""


class Text(str):
    """One English text, its places filled in.

    Args:
        template: the text, ``{name}`` in its places; without values it is taken as it is.
        values: what stands there, of any kind; a ``Text`` is told in the same language.
    """

    __slots__ = ("_many", "_number", "_template", "_values")

    def __new__(cls, template: str, /, **values: Any) -> Text:
        """Make the text in English."""
        text = super().__new__(cls, template.format_map(values) if values else template)
        text._template, text._many, text._number, text._values = template, "", 0, values
        return text

    _template: str
    _many: str
    _number: int
    _values: Mapping[str, Any]

    def told(self, catalogue: Catalogue) -> str:
        """Return the text in the catalogue's language; what is not there stays English."""
        if not self._template:
            return ""  # gettext has its header there
        if self._many:
            template = catalogue.ngettext(self._template, self._many, self._number)
        else:
            template = catalogue.gettext(self._template)
        values = {name: told(value, catalogue) for name, value in self._values.items()}
        return template.format_map(values) if values else template

    def known(self, catalogue: Catalogue) -> bool:
        """Whether the catalogue has it; of a text that only puts others together, has those."""
        if catalogue.gettext(self._template) != self._template:
            return True
        own = "".join(words for words, *_ in Formatter().parse(self._template))
        parts = [each for each in self._values.values() if isinstance(each, Text)]
        only_puts = bool(parts) and not any(map(str.isalpha, own))
        return only_puts and all(each.known(catalogue) for each in parts)


def instant(at: datetime) -> str:
    """Return an instant as a text holds it: as data, ``2030-01-02T19:19:05Z``.

    Who shows the text writes it in the reader's zone and by the reader's clock.
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def counted(one: str, many: str, n: int, /, **values: Any) -> Text:
    """Return one of two texts by the number ``n``, which both may name."""
    text = Text(one if n == 1 else many, n=n, **values)
    text._template, text._many, text._number = one, many, n  # noqa: SLF001 - made here
    return text


def joined(*texts: str) -> Text:
    """Return several texts as one, a space between them; empty ones are left out."""
    found = {f"text{place}": text for place, text in enumerate(texts) if text}
    return Text(" ".join(f"{{{name}}}" for name in found), **found)


def told(value: Any, catalogue: Catalogue) -> Any:
    """Return a JSON value with every ``Text`` in it told in the catalogue's language."""
    if isinstance(value, Text):
        return value.told(catalogue)
    if isinstance(value, dict):
        return {name: told(each, catalogue) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [told(each, catalogue) for each in value]
    return value
