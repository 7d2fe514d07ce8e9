"""Which names a cell may have changed, from what its text touches.

Owns the way from touched names to all that share or are read along with them: exact where the cell
ran, a guess from the safe side at home.  It asks no values whether they did change.
"""

from __future__ import annotations

from collections.abc import Collection

from gpulease.sides.names.analysis import Use
from gpulease.transfer.values.groups import Check, Survey, name_root
from gpulease.transfer.values.side import Side


def near_names(side: Side, touched: Collection[str], announced: Collection[str]) -> set[str]:
    """Return the names here that were touched, or born: neither agreed on nor ``announced``."""
    base, here = side.ledger.base, set(side.names())
    born = {n for n in here if name_root(n) not in base and n not in announced}
    return (here & set(touched)) | born


def touched_names(
    side: Side,
    touched: Collection[str] | None,
    announced: Collection[str],
    check: Check = lambda: None,
) -> tuple[list[str] | None, Survey | None]:
    """Return the names to look at after a cell that touched these; None for all.

    Where one walk went from all of them, what it found is returned as well: to walk from a list of
    thousands of losses takes long, so nobody does it twice.
    """
    if touched is None:
        return None, None
    side.supersede()
    base = side.ledger.base
    here = set(side.names())
    names: set[str] = set()
    new = near_names(side, touched, announced) | (side.kept.partners_of_lost() & here)
    new = side.ledger.partners(new) & here  # who shared a group with one of them takes part
    first = survey = None
    while new:  # each name is walked from once
        names |= new
        survey = side.survey(new, check)
        first = first or survey
        reached = set(survey.by_root)
        if survey.held.leaves:  # which names one shares something with is told by a look at all
            survey = side.survey(check=check)
            reached = side.closure(new, survey, reads=True) & survey.by_root.keys()
        if any(survey.by_root[root].unbounded for root in reached):
            return None, None
        roots = side.closure(new, survey, reads=True)
        known = [base[root].roots for root in reached if root in base]
        roots = roots.union(*known)
        new = ({r[2:] for r in roots if r.startswith("n:")} & here) - names
    return sorted(names), first if survey is first else None


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
