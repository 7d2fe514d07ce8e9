"""Which of home's names a GPU cell may have changed, when its changes are not known yet.

Owns that guess, from the safe side, and nothing else.
"""

from __future__ import annotations

from .analysis import Use
from .side import Side


def doubtful(side: Side, use: Use) -> list[str]:
    """Return home's names that a GPU cell may have changed and that did not come yet.

    Names that the companion did not hold are among them: a cell may bind them anew.
    """
    base = side.ledger.base
    survey = side.survey()
    here = set(side.names())
    if use.unbounded or any(group.unbounded for group in survey.groups):
        return sorted(here)
    roots = side.closure(use.touched & here, survey, reads=True)
    bad = set(roots)
    for root in roots:
        if root in base:
            bad |= base[root].roots
    grown = True
    while grown:  # whatever needs something doubtful is doubtful
        grown = False
        for group in survey.groups:
            if not bad.issuperset(group.roots) and (
                bad & group.key or any("u:" + oid in bad for oid in group.needs)
            ):
                bad |= group.key
                grown = True
    return sorted({root[2:] for root in bad if root.startswith("n:")} & here)
