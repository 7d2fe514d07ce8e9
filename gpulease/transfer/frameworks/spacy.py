"""spaCy: tokens and spans travel as places in their document, with which they come.

spaCy itself refuses to pickle them, and gives new ones with each look into a document, so that none
need be the very object that it was.  Groups of spans are the document's own where it has them.
"""

from __future__ import annotations

from typing import Any

from spacy.language import Language
from spacy.lexeme import Lexeme
from spacy.tokens import Doc, Span, SpanGroup, Token
from spacy.tokens._dict_proxies import SpanGroups
from spacy.util import SimpleFrozenDict, SimpleFrozenList

from .base import Aside, Inside, Packing, Stage

try:
    from spacy.pipeline.factories import register_factories
except ImportError:  # before 3.8.8, pipes enter themselves when they are imported

    def register_factories() -> None:
        """Leave it as it is."""


_FROZEN = (SimpleFrozenList, SimpleFrozenDict)
_KINDS: tuple[Any, ...] = (Token, Span, Lexeme, SpanGroup, SpanGroups, *_FROZEN)


class _Spacy(Aside):
    """See ``base.Framework``."""

    def claims(self, kind: type) -> bool:
        return kind in _KINDS or issubclass(kind, Language)

    def inside(self, obj: Any, scratch: dict[Any, Any]) -> Inside:  # noqa: ARG002
        return Inside([vars(obj)] if isinstance(obj, Language) else list(_parts(obj)[1]))

    def reduce(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return NotImplemented if isinstance(obj, Language) else _parts(obj)

    def content(self, obj: Any, packing: Packing) -> Any:  # noqa: ARG002
        return isinstance(obj, Language) or None

    def apply(self, pairs: list[tuple[Any, Any]], stage: Stage) -> None:  # noqa: ARG002
        if pairs:
            register_factories()  # as ``Language.__init__``, which nobody called here


FRAMEWORK = _Spacy()


def _parts(obj: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what makes such an object, and of what."""
    if isinstance(obj, Token):
        return token, (obj.doc, obj.i)
    if isinstance(obj, Span):
        return span, (obj.doc, _place(obj))
    if isinstance(obj, Lexeme):
        return lexeme, (obj.vocab, obj.text)
    if isinstance(obj, SpanGroups):
        return groups, (obj.doc_ref(),)
    return _parts_of_group(obj) if isinstance(obj, SpanGroup) else _parts_of_frozen(obj)


def _parts_of_group(obj: SpanGroup) -> tuple[Any, tuple[Any, ...]]:
    key = next((key for key, own in obj.doc.spans.items() if own is obj), None)
    if key is not None:
        return group_of, (obj.doc, key)
    return group, (obj.doc, obj.name, dict(obj.attrs), [_place(each) for each in obj])


def _parts_of_frozen(obj: Any) -> tuple[Any, tuple[Any, ...]]:
    return frozen, (type(obj), list(obj) if isinstance(obj, list) else dict(obj), obj.error)


def _place(obj: Span) -> tuple[Any, ...]:
    return obj.start, obj.end, obj.label_, obj.kb_id_, obj.id_


def token(doc: Doc, index: int) -> Token:
    """Return a token of a document."""
    return doc[index]


def span(doc: Doc, place: tuple[Any, ...]) -> Span:
    """Return a span of a document: its first token, the one after its last, its labels."""
    start, end, label, kb_id, span_id = place
    return Span(doc, start, end, label=label, kb_id=kb_id, span_id=span_id)


def lexeme(vocab: Any, text: str) -> Lexeme:
    """Return a word of a vocabulary."""
    return vocab[text]


def groups(doc: Doc) -> SpanGroups:
    """Return a document's groups of spans."""
    return doc.spans


def group_of(doc: Doc, key: str) -> SpanGroup:
    """Return one of them."""
    return doc.spans[key]


def group(doc: Doc, name: str, attrs: dict[str, Any], places: list[tuple[Any, ...]]) -> SpanGroup:
    """Return a group of spans that its document does not know."""
    return SpanGroup(doc, name=name, attrs=attrs, spans=[span(doc, place) for place in places])


def frozen(kind: Any, inside: Any, error: str) -> Any:
    """Return a list or dict that says ``error`` to whoever changes it."""
    return kind(inside, error=error)
