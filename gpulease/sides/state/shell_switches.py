"""The switches of IPython's own shell: what of a cell is shown, and how it is read.

One set by attribute counts too, on the shell (``get_ipython().autocall = 1``) or on a class
(``InteractiveShell.ast_node_interactivity = "all"``, which takes the place of the trait).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpulease.sides.libraries import library

_PLAIN = (str, bool, int)
#: By what has them.
_SWITCHES = {
    "shell": (
        "ast_node_interactivity", "autoawait", "autocall", "automagic", "colors",
        "show_rewritten_input",
    ),
    "text": ("max_seq_length", "max_width", "newline", "pprint", "verbose"),
    "traceback": ("mode",),
    "compiler": ("flags",),  # `from __future__ import ...` holds for the cells after it
}  # fmt: skip


def get() -> dict[str, Any]:
    """Return every switch, by the class or object that it is set on."""
    found: dict[str, Any] = {}
    for part, owner in _owners():
        for name in _SWITCHES[part]:
            for kind in type(owner).__mro__:
                if isinstance(value := vars(kind).get(name), _PLAIN):
                    found[f"{kind.__name__}.{name}"] = value
            found[f"{part}.{name}"] = getattr(owner, name)
    return found


def put(values: dict[str, Any]) -> None:
    """Set some: on classes first, for then their objects may have the value already."""
    owners = dict(_owners())
    for key in sorted(values, key=lambda key: key.partition(".")[0] in _SWITCHES):
        where, _, name = key.partition(".")
        owner: Any = owners.get(where) or next(
            (kind for each in owners.values() for kind in type(each).__mro__
             if kind.__name__ == where), None
        )  # fmt: skip
        if owner is None or getattr(owner, name) == values[key]:
            continue
        if where == "traceback":
            owner.set_mode(values[key])
        else:
            setattr(owner, name, values[key])


def _owners() -> Iterator[tuple[str, Any]]:
    ipython = library("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        yield "shell", shell
        yield "text", shell.display_formatter.formatters["text/plain"]
        yield "traceback", shell.InteractiveTB
        yield "compiler", shell.compile
