"""What a person types to have a notebook run, in a terminal and behind ``%gpu submit``.

The options, parameters (``-p name=value``) and arrays (``--array 1-20``), and what they become as
the body of ``POST runs``.
"""

from __future__ import annotations

import argparse
import json
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

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
    )


USAGE = (
    "submit NOTEBOOK [--class NAME] [--count N] [--min-count N] [--at-least 40%] [--nodes N]"
    " [--for 2h] [-p NAME=VALUE]... [--after RUN]... [--array 1-20] [--on-loss restart|fail]"
    " [--project NAME]"
)

HELP = f"""\
%gpu {USAGE}

runs a whole notebook without you, its GPU cells when there is a GPU, and writes its output beside
it. `gpulease submit --help`, in a terminal, says what each option means; `gpulease runs` lists your
runs, with what to do about them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument("notebook", metavar="NOTEBOOK", help="the notebook, an .ipynb file")
    parser.add_argument("--class", dest="gpu_class", metavar="NAME", help="GPU class of its cells")
    parser.add_argument("--count", type=int, metavar="N", help="number of GPUs (one for each node)")
    parser.add_argument(
        "--min-count", type=int, metavar="N", help="the minimum, where no more are free"
    )
    parser.add_argument(
        "--at-least", metavar="40%", help="of a part of a card: the least part to continue with"
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="divide its GPUs among this number of nodes",
    )
    parser.add_argument("--for", dest="length", metavar="2h", help="a GPU for at most this long")
    parser.add_argument("--project", metavar="NAME", help="charge its GPUs to this project")
    parser.add_argument(
        "-p", dest="parameters", action="append", default=[], metavar="NAME=VALUE",
        help="set a parameter of the notebook; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--after", action="append", default=[], metavar="RUN",
        help="only when this run, or every run of this array, has succeeded; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--array",
        metavar="1-20",
        help="a run for each number, with the parameter array_index; also 1,3,5-7; at most 200",
    )
    parser.add_argument(
        "--on-loss", choices=("fail", "restart"), default="fail",
        help="when the notebook's kernel dies: the run fails, or starts again",
    )  # fmt: skip


def body(
    arguments: argparse.Namespace, folder: Path, seconds: Callable[[str], float]
) -> dict[str, Any]:
    """Return the body of ``POST runs``.

    Args:
        arguments: of a parser with ``add_arguments``.
        folder: what a relative path begins at.
        seconds: reads a duration such as ``2h``.

    Raises:
        GPULeaseError: ``no_notebook``, ``bad_parameter``, ``bad_array``, ``bad_option``,
            and those of ``seconds``.
    """
    notebook = folder / Path(arguments.notebook).expanduser()
    if notebook.suffix != ".ipynb" or not notebook.is_file():
        raise GPULeaseError(
            "no_notebook",
            f"There is no notebook {notebook}.",
            next_step="Name an .ipynb file.",
        )
    parameters = read_parameters(arguments.parameters)
    if arguments.array is not None:
        read_array(arguments.array)
        if INDEX in parameters:
            raise GPULeaseError(
                "bad_parameter",
                f"--array gives {INDEX} to each run; -p {INDEX} cannot, too.",
                next_step="Leave one of the two out.",
            )
    return {
        "notebook": str(notebook.resolve()),
        "gpu_class": arguments.gpu_class,
        "count": arguments.count,
        "min_count": arguments.min_count,
        "at_least": _percent(arguments.at_least) if arguments.at_least else None,
        "nodes": arguments.nodes,
        "seconds": seconds(arguments.length) if arguments.length else None,
        "project": arguments.project,
        "parameters": parameters,
        "after": arguments.after,
        "array": arguments.array,
        "on_loss": arguments.on_loss,
    }


def _percent(text: str) -> int:
    number = text.removesuffix("%").strip()
    if number.isdecimal() and 1 <= int(number) <= 100:
        return int(number)
    raise GPULeaseError(
        "bad_option",
        f"--at-least takes a percent from 1 to 100, not {text!r}.",
        next_step="Write for example --at-least 40%.",
    )


def advice(wanted: Mapping[str, Any]) -> str:
    """Return what to mind of a submission's parameters, "" for nothing.

    Args:
        wanted: the body, of ``body`` or ``read``.
    """
    names = [*wanted["parameters"], *([INDEX] if wanted["array"] else [])]
    try:
        cells = json.loads(Path(wanted["notebook"]).read_bytes())["cells"]
        codes = [each for each in cells if each["cell_type"] == "code"]
        if any("parameters" in each["metadata"].get("tags", ()) for each in codes):
            return ""
        text = "\n".join(line for each in codes for line in ("".join(each["source"]), ""))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""  # whether it is a notebook is for the run to say
    again = [name for name in names if re.search(rf"^{name}\s*(:.*)?=(?!=)", text, re.MULTILINE)]
    if not again:
        return ""
    return (
        f"The notebook sets {', '.join(again)} itself, after the parameters: give the cell that "
        "does the tag `parameters`, and they come after it."
    )


def read(words: Sequence[str], folder: Path, seconds: Callable[[str], float]) -> dict[str, Any]:
    """Return the body of what stands behind ``%gpu submit``.

    Raises:
        GPULeaseError: ``bad_option``, and those of ``body``.
    """
    parser = _Parser(prog="%gpu submit", add_help=False)
    add_arguments(parser)
    return body(parser.parse_args(list(words)), folder, seconds)


def said(runs: Sequence[dict[str, Any]], advice: str = "") -> str:
    """Return what a person reads after a submission."""
    first, last = runs[0], runs[-1]
    result = Path(first["result"]).name
    if len(runs) == 1:
        text = f"Submitted: run {first['id']}. Its output will be beside the notebook, in {result}."
    else:
        text = (
            f"Submitted: {len(runs)} runs, array {first['array']}. Their output will be beside the "
            f"notebook, in {result} to {Path(last['result']).name}."
        )
    text = f"{text} {advice}".rstrip()
    budget = first["budget"]
    if budget is None:
        return text
    return f"{text} {budget['left']:g} of {budget['of']:g} GPU-hours of its budget left."


class _Parser(argparse.ArgumentParser):
    """One that raises in place of ending the process: a kernel keeps running."""

    def error(self, message: str) -> NoReturn:
        raise GPULeaseError(
            "bad_option",
            f"%gpu submit: {message}.",
            next_step=f"Usage: %gpu {USAGE}",
            status=422,
        )
