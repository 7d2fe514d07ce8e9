"""What differs between a notebook in a plain kernel and the same notebook placed, and what to do.

Pure.  What differs between two plain runs already is no fault of a placement: it is set aside.  So
is what comes after an error that only the placement has, which may differ for that reason alone.
What a cell showed is compared without addresses, message ids, process ids, names of temporary
files, times, and where the text of a stream was cut into messages.  The order in which stdout and
stderr reach a page is a matter of time too, so the two are compared apart from each other and from
what was displayed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from gpulease.verify.notebook import CodeCell
from gpulease.verify.runner import CellRun, NotebookRun

_SHOWN = 300
_SEED = (
    "It differs from run to run in a plain kernel too, so it is not compared. Seed its random "
    "numbers and leave out times, and it will be."
)
_REPORT = (
    "If docs/transfer.md does not except it, this is a fault of gpulease: please report it with "
    "this notebook."
)
_AFTER = (
    "They differ after this cell's error and perhaps because of it, so they are not compared. Fix "
    "the cell and verify again, and they will be."
)


@dataclass(frozen=True)
class Difference:
    """One difference.

    Attributes:
        cell: number in the notebook, from 1, text cells counted; 0 for none in particular.
        kind: ``error``, ``output``, ``value``, ``type``, ``alias``, ``missing`` or ``stays``;
            ``set aside``: what differs after an error, in ``found``.
        name: the variable, "" for what a cell showed.
        expected: in the plain kernel.
        found: in this placement.
        advice: what the author can do.
    """

    cell: int
    kind: str
    name: str
    expected: str
    found: str
    advice: str


@dataclass(frozen=True)
class Steady:
    """What is the same in two plain runs, and so can be compared.

    ``cells`` are indices of those that are not; ``names`` and ``aliases`` likewise.
    """

    cells: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()
    aliases: bool = True
    remarks: list[Difference] = field(default_factory=list)


def steady(cells: Sequence[CodeCell], first: NotebookRun, second: NotebookRun) -> Steady:
    """Return what differs from run to run, with a remark for each."""
    shaky = frozenset(
        index
        for index, (a, b) in enumerate(zip(first.cells, second.cells, strict=True))
        if shown(a) != shown(b)
    )
    mine, theirs = first.picture["values"], second.picture["values"]
    names = frozenset(
        name for name in mine.keys() | theirs.keys() if not _alike(mine, theirs, name)
    )
    remarks = [Difference(cells[i].number, "output", "", "", "", _SEED) for i in sorted(shaky)]
    remarks += [Difference(_made(cells, n), "value", n, "", "", _SEED) for n in sorted(names)]
    return Steady(shaky, names, first.picture["aliases"] == second.picture["aliases"], remarks)


def compare(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady
) -> list[Difference]:
    """Return how a placed run differs from the plain one."""
    for index, (expected, found) in enumerate(zip(plain.cells, placed.cells, strict=True)):
        if expected.ok and not found.ok:
            before = _outputs(cells, plain, placed, what, range(index))
            return [
                *before,
                _error(cells[index], found),
                *_aside(cells, plain, placed, what, index),
            ]
    findings = _outputs(cells, plain, placed, what, range(len(cells)))
    return [*findings, *_values(cells, plain, placed, what)]


def shown(run: CellRun, known: Collection[str] = ()) -> str:
    """Return what a cell showed as text that two runs can be compared by.

    ``known``: lines on stderr that do not count.
    """
    messages = [_without_frames(message) for message in run.messages]
    streams, others, reply = seen(messages, {**run.reply, "traceback": None})
    text = json.dumps([without_once(streams, known), others, reply], ensure_ascii=False)
    return without_lines(without_durations(text))


def _without_frames(message: dict[str, Any]) -> dict[str, Any]:
    if message["msg_type"] != "error":
        return message
    return {**message, "content": {**message["content"], "traceback": []}}


def _outputs(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady, which: range
) -> list[Difference]:
    findings = []
    for index in which:
        expected, found = shown(plain.cells[index]), shown(placed.cells[index])
        if expected != found:  # the other side may warn of what was warned of before, for itself
            before = [lines_of_stderr(run.messages) for run in plain.cells[:index]]
            again = set().union(*before) - lines_of_stderr(plain.cells[index].messages)
            found = shown(placed.cells[index], again)
        if expected != found and index not in what.cells:
            one, other = _apart(expected, found)
            findings.append(Difference(cells[index].number, "output", "", one, other, _REPORT))
    return findings


def _error(cell: CodeCell, run: CellRun) -> Difference:
    name, text = str(run.reply.get("ename", "")), str(run.reply.get("evalue", ""))
    found = f"{name}: {text}"
    if name == "GPULeaseError":
        advice = (
            "What cannot travel is made in the cell that uses it, or its cells run on one side."
        )
    elif name == "ModuleNotFoundError":
        advice = "Both sides need the package."
    else:
        advice = f"Run this cell where what it uses was made. {_REPORT}"
    return Difference(cell.number, "error", "", "no error", found[:_SHOWN], advice)


def _aside(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady, failed: int
) -> list[Difference]:
    """Return in one finding what differs after the error of a cell; nothing where nothing does."""
    later = _outputs(cells, plain, placed, what, range(failed + 1, len(cells)))
    names = {finding.name for finding in _values(cells, plain, placed, what)}
    parts = [
        f"{one if len(which) == 1 else one + 's'} {', '.join(which)}"
        for one, which in (
            ("cell", [str(finding.cell) for finding in later]), ("variable", sorted(names)),
        )
        if which
    ]  # fmt: skip
    if not parts:
        return []
    return [Difference(cells[failed].number, "set aside", "", "", "; ".join(parts), _AFTER)]


def _values(
    cells: Sequence[CodeCell], plain: NotebookRun, placed: NotebookRun, what: Steady
) -> list[Difference]:
    findings = []
    mine, theirs = plain.picture["values"], placed.picture["values"]
    for name in mine:
        cell = _made(cells, name)
        if name in placed.stayed:
            one, other = mine[name][1][:_SHOWN], placed.stayed[name][:_SHOWN]
            step = (
                "Make it in the cell that uses it; a cell that reads it on the other side stops "
                "and says so."
            )
            findings.append(Difference(cell, "stays", name, one, other, step))
        elif name not in theirs:
            findings.append(
                Difference(cell, "missing", name, mine[name][1][:_SHOWN], "not defined", _REPORT)
            )
        elif mine[name][0] != theirs[name][0]:
            findings.append(Difference(cell, "type", name, mine[name][0], theirs[name][0], _REPORT))
        elif name not in what.names and not _alike(mine, theirs, name):
            one, other = _apart(mine[name][1], theirs[name][1])
            findings.append(Difference(cell, "value", name, one, other, _REPORT))
    if findings or not what.aliases:
        return findings
    return _aliases(cells, plain.picture["aliases"], placed.picture["aliases"])


def _aliases(
    cells: Sequence[CodeCell], plain: list[list[str]], placed: list[list[str]]
) -> list[Difference]:
    findings = []
    for one, other, words in ((plain, placed, "lost"), (placed, plain, "new")):
        for group in one:
            if group not in other:
                text = " is ".join(group[:4])
                pair = (text, "no longer the same") if words == "lost" else ("apart", text)
                name = group[0].partition("[")[0].partition(".")[0]
                findings.append(Difference(_made(cells, name), "alias", name, *pair, _REPORT))
    return findings


def _alike(mine: dict[str, Any], theirs: dict[str, Any], name: str) -> bool:
    one, other = mine.get(name), theirs.get(name)
    return one is not None and other is not None and one[2] == other[2]


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return both texts from a little before they part."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, at - 40)
    return one[start : start + _SHOWN], other[start : start + _SHOWN]


def _made(cells: Sequence[CodeCell], name: str) -> int:
    """Return the last cell that binds a name; 0 where none does so by its text."""
    return next((cell.number for cell in reversed(cells) if name in _binds(cell.plain)), 0)


def _binds(source: str) -> set[str]:
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
    return found


Message = Mapping[str, Any]

_DURATION = re.compile(r"\b\d+(?:\.\d+)?(?:e-?\d+)?\s?(?:ns|us|µs|μs|ms|s|sec|seconds|min)\b")
#: As torch's compiled code warns: once in each process.
_ONCE = re.compile(
    r"[^\n]*Warning: (?:(?!Warning: ).)*?\(Triggered internally at [^)]*\)\n(?:  [^\n]*\n)?",
    re.DOTALL,
)


def seen(messages: Iterable[Message], reply: Mapping[str, Any]) -> list[Any]:
    """Return what a person saw: streams, everything else in order, the reply."""
    found: list[Any] = []
    for message in _without_progress(messages):
        kind, content = message["msg_type"], dict(message["content"])
        if kind == "stream":
            _add_text(found, content["name"], content["text"])
        elif kind == "comm_msg":
            _add_to_widget(found, deepcopy(content))
        else:
            found.append([kind, content])
    for item in found:
        if item[0] == "stream":
            item[2] = item[2].replace("\r", "\n")
    kept = ("status", "ename", "evalue", "payload", "traceback", "execution_count")
    streams = sorted((i for i in found if i[0] == "stream"), key=lambda i: str(i[1]))
    others = [i for i in found if i[0] != "stream"]
    shown = [streams, others, {key: reply.get(key) for key in kept}]
    result: list[Any] = json.loads(neutral(json.dumps(shown)))
    return result


def _without_progress(messages: Iterable[Message]) -> Iterator[Message]:
    """Leave out what shows how a value moves: it comes and goes."""
    own = False
    for message in messages:
        shown = str(message["content"].get("transient", {}).get("display_id", ""))
        if shown.startswith("gpulease-"):
            own = True
        elif not (own and message["msg_type"] == "clear_output"):
            own = False
            yield message


def _add_text(found: list[Any], name: str, text: str) -> None:
    for earlier in reversed(found):
        if earlier[0] != "stream":
            break
        if earlier[1] == name:
            earlier[2] += text
            return
    found.append(["stream", name, text])


def _add_to_widget(found: list[Any], content: dict[str, Any]) -> None:
    """Add a message to a widget; of its updates counts what it shows in the end.

    How often a progress bar of tqdm tells of itself depends on the time.
    """
    for _, earlier in (item for item in found if item[0] == "comm_msg"):
        same = earlier["comm_id"] == content["comm_id"]
        if same and _is_update(earlier) and _is_update(content):
            earlier["data"]["state"].update(content["data"]["state"])
            return
    found.append(["comm_msg", content])


def _is_update(content: Mapping[str, Any]) -> bool:
    data = content.get("data", {})
    return data.get("method") == "update" and not data.get("buffer_paths")


def neutral(text: str) -> str:
    """Replace in JSON text what differs from run to run."""
    ids: dict[str, str] = {}
    text = re.sub(r"[0-9a-f]{32}", lambda m: ids.setdefault(m[0], f"id{len(ids)}"), text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{24}(_\d+)*", "MESSAGE", text)
    text = re.sub(r"ipykernel_\d+/\d+\.py", "ipykernel/cell.py", text)
    text = re.sub(r"\(\d+\.py, line", "(cell.py, line", text)
    text = re.sub(r"(?:0|\.\.\.)x[0-9a-fA-F]{6,}", "0xADDRESS", text)  # scikit-learn shortens some
    text = re.sub(r"\b([IWE])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", r"\1 ", text)  # as glog begins lines
    text = re.sub(r"(CPU times|Wall time): .*?\\n", "TIME", text)
    text = re.sub(r"iVBOR[A-Za-z0-9+/=\\n]{200,}", "PNG", text)
    return re.sub(r"\d\d:\d\d&lt;[^\"]*", "BAR", text)


def without_once(streams: list[Any], known: Collection[str] = ()) -> list[Any]:
    """Leave out warnings that a library gives once in a process: of two, each gives its own.

    ``known`` are lines that stood on stderr before, under another cell.
    """

    def rest(text: str) -> str:
        lines = _ONCE.sub("", text).splitlines(keepends=True)
        return "".join(line for line in lines if line not in known)

    texts = [(name, text if name != "stderr" else rest(text)) for _, name, text in streams]
    return [["stream", name, text] for name, text in texts if text]


def lines_of_stderr(messages: Iterable[Message]) -> set[str]:
    """Return the lines that a cell showed on stderr."""
    streams, _, _ = seen(messages, {})
    return {
        line
        for _, name, text in streams
        if name == "stderr"
        for line in text.splitlines(keepends=True)
    }


def without_durations(text: str) -> str:
    """Replace lengths of time, as programs print them."""
    return _DURATION.sub("TIME", text)


def without_lines(text: str) -> str:
    """Replace line numbers of cells: one on the GPU has ``%%gpu`` as its first line."""
    return re.sub(r"((?:cell\.py|<>)\W*?(?::|, line ))\d+", r"\1N", text)
