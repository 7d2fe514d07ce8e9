"""What a cell showed, without what may differ between two runs of the very same kernel.

Addresses, message ids, process ids, names of temporary files, times, and where the text of a
stream was cut into messages.  The order in which stdout and stderr reach a page is a matter of time
too, so the two are compared apart from each other and from what was displayed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

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
