"""What is said of spaCy's tokens and spans, which show a part of a document."""

import pytest

from gpulease.errors import GPULeaseError

MAKE = (
    "import spacy\nnlp = spacy.blank('en'); nlp.add_pipe('sentencizer')\n"
    "doc = nlp('It is. It was.'); s = doc[0:2]"
)


def test_a_span_is_refused_by_name_and_keeps_the_document_that_it_was_made_of(pair):
    pair.gpu(MAKE)
    with pytest.raises(GPULeaseError, match=r"^s cannot travel.*not supported"):
        pair.home("s.text")
    pair.home("doc.user_data['m'] = 1")
    pair.gpu("same = s.doc is doc")
    assert [(note.reason, note.names) for note in pair.last.notes] == [
        ("kept_old_object", ("doc",))
    ]
    assert pair.home("same, doc.user_data['m']") == (False, 1)


def test_a_generator_of_cython_stays_and_goes_on(pair):
    pair.gpu(MAKE + "\ndel s; sents = doc.sents; next(sents)")
    with pytest.raises(GPULeaseError, match=r"^sents cannot travel.*generator"):
        pair.home("sents")
    assert pair.home("doc.text") == "It is. It was."
    pair.gpu("assert next(sents).text == 'It was.'")
