"""Matches of regular expressions: what was found is found again, in the same text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from .refuse import RefusedError

#: Of a text with more matches before it, a match is not looked for again.
_MOST = 1_000


def reduce(match: re.Match[Any]) -> Any:
    """Reduce a match to how it is found again; raises RefusedError where it is not."""
    arguments = (match.re, match.string, match.pos, match.endpos, match.regs)
    if not any(_candidates(*arguments)):
        raise RefusedError("a match that is not found again", match)
    return found_again, arguments


def found_again(pattern: Any, text: Any, pos: int, endpos: int, regs: Any) -> Any:
    """Return the match of these groups' places."""
    return next(_candidates(pattern, text, pos, endpos, regs))


def _candidates(
    pattern: re.Pattern[Any], text: Any, pos: int, endpos: int, regs: Any
) -> Iterator[re.Match[Any]]:
    ways = (pattern.fullmatch(text, pos, endpos), pattern.match(text, pos, endpos))
    later = itertools.islice(pattern.finditer(text, pos, endpos), _MOST)
    upto = itertools.takewhile(lambda found: found.start() <= regs[0][0], later)
    for found in itertools.chain(ways, upto):
        if found is not None and found.regs == regs:
            yield found
