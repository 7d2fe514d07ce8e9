"""Parameters and arrays as they are typed: ``-p name=value`` and ``--array 1-20``."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable

from gpulease.errors import GPULeaseError
from gpulease.runs.model import Value

#: The parameter that tells each run of an array its number.
INDEX = "array_index"
#: Runs of one array.
ARRAY_MAX = 200
_CONSTANTS: dict[str, Value] = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def read_parameters(pairs: Iterable[str]) -> dict[str, Value]:
    """Return ``name=value`` pairs; a value that reads as a number or a constant is one.

    Raises:
        GPULeaseError: ``bad_parameter``.
    """
    found: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise _bad(f"{pair!r} is no parameter.")
        check_name(name)
        if name in found:
            raise _bad(f"{name} is given twice.")
        found[name] = _value(text)
    return found


def check_name(name: str) -> None:
    """Refuse what is no name of Python's.

    Raises:
        GPULeaseError: ``bad_parameter``.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise _bad(f"{name!r} is no name of a variable.")


def read_array(text: str) -> tuple[int, ...]:
    """Return the numbers of ``1-20``, or of ``1,3,5-7``, in order and each once.

    Raises:
        GPULeaseError: ``bad_array``.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last or last - first >= ARRAY_MAX:
            raise _bad_array(text)
        found.update(range(first, last + 1))
    if len(found) > ARRAY_MAX:
        raise _bad_array(text)
    return tuple(sorted(found))


def _value(text: str) -> Value:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if math.isfinite(number):  # the rest has no form in JSON
            return number
    return text


def _bad(sentence: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_parameter",
        sentence,
        next_step="Write -p name=value, for example -p epochs=10.",
        status=422,
    )


def _bad_array(text: str) -> GPULeaseError:
    return GPULeaseError(
        "bad_array",
        f"{text!r} is no list of at most {ARRAY_MAX} numbers.",
        next_step="Write --array 1-20, or --array 1,3,5-7.",
        status=422,
    )
