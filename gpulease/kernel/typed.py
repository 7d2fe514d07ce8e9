"""What a GPU cell reads of IPython's own: inputs typed in the notebook, magics defined there.

A small program puts them in place in the companion before the cell.  ``outputs`` does it for
results.
"""

from __future__ import annotations

import re
from typing import Any

from gpulease.kernel.outputs import CARRIER
from gpulease.sides.magics import is_own

_INPUTS = re.compile(r"(?<!\w)(?:In|_ih|_i{1,3}|_i(\d+))(?!\w)")
_MAGIC = re.compile(r"^\s*(?:\w+\s*=\s*)?(%%?)([A-Za-z_]\w*)", re.MULTILINE)


def for_away(shell: Any, source: str, values: dict[str, Any]) -> list[str]:
    """Return the lines of a program that reads ``values``, which this adds to."""
    return [*_inputs(shell, source, values), *_magics(shell, source, values)]


def _inputs(shell: Any, source: str, values: dict[str, Any]) -> list[str]:
    matches = list(_INPUTS.finditer(source))
    if not matches:
        return []
    history = shell.history_manager
    # The cell itself is the last one here; over there IPython enters it when it starts.
    values["In"] = list(history.input_hist_parsed[:-1])
    values["_i"] = [getattr(history, name) for name in ("_i", "_ii", "_iii")]
    numbered = {m[0]: shell.user_ns[m[0]] for m in matches if m[1] and m[0] in shell.user_ns}
    values["_in"] = numbered
    there = "get_ipython().history_manager"
    return [
        f"{there}.input_hist_parsed[:] = {CARRIER}['In']",
        f"{there}._i00, {there}._i, {there}._ii = {CARRIER}['_i']",
        f"get_ipython().push({CARRIER}['_in'], interactive=False)",
    ]


def _magics(shell: Any, source: str, values: dict[str, Any]) -> list[str]:
    lines = []
    for signs, name in dict.fromkeys(_MAGIC.findall(source)):
        kind = "cell" if signs == "%%" else "line"
        function = shell.magics_manager.magics[kind].get(name)
        if is_own(shell, function):
            key = signs + name
            values[key] = function
            lines.append(
                f"get_ipython().register_magic_function({CARRIER}[{key!r}], {kind!r}, {name!r})"
            )
    return lines
