"""Notebooks as people write them, each in a plain kernel and placed, compared cell by cell.

``notebooks/*/NAME.ipy`` are texts with cells after ``# %%`` (jupytext's percent format).  A text is
half as long as a notebook's JSON, and a reviewer reads it as it is.  The suffix is IPython's own
for Python with magics: ``%%time`` and ``!ls`` stand there as people type them, and no Python tool
takes such a file for Python.  Rooms are ``python`` (the standard library), ``data`` (what a
student's image has), ``science`` and ``learning`` (the packages of constraints-frameworks.txt).

Rules for a notebook: ours, none copied; a title; 8 to 25 code cells; no network; seeded; a few
seconds on one core; it shows what matters.  It is written as people write, not for this engine.
A cell that raises has the tag ``raises-exception``, as nbconvert knows it.  One whose output or
variables may differ by the contract has ``excepted-WHAT``, with WHAT in ``judge.EXCEPTIONS``.

``python -m tests.corpus --plain`` says whether notebooks are repeatable, ``python -m tests.corpus``
(``make test-corpus``) places them.
"""
