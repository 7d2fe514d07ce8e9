"""What is said of spaCy's tokens and spans, which show a part of a document."""

import pytest

from gpulease.errors import GPULeaseError

MAKE = (
    "import spacy\nnlp = spacy.blank('en'); nlp.add_pipe('sentencizer')\n"
    "doc = nlp('It is. It was.'); tok = doc[0]; s = doc[0:2]; lex = nlp.vocab['It']"
)


def test_nobody_is_told_of_what_only_gpulease_holds(pair):
    """Cython's objects cannot be referred to weakly: a table of ours holds them."""
    pair.gpu(MAKE)
    pair.home("assert tok.doc is doc is s.doc\ndoc.spans['m'] = [s]")
    pair.gpu("doc.spans['n'] = [doc[1:2]]")
    pair.home("assert s.doc is doc and sorted(doc.spans) == ['m', 'n'] and lex.text == 'It'")
    assert not [note for note in pair.after.notes if note.reason == "kept_old_object"]


def test_a_generator_of_cython_stays_and_keeps_its_document(pair):
    pair.gpu(MAKE + "\nsents = doc.sents; hold = [sents]; next(sents)")
    said = r"doc.* cannot travel .*: it is in use by (sents|hold\[0\]), a generator"
    with pytest.raises(GPULeaseError, match=said):
        pair.home("doc")
    pair.gpu("assert next(sents).text == 'It was.'\ndel sents, hold")
    pair.home("assert doc.text == 'It is. It was.'")
