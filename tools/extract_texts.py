"""Lists the texts of the JupyterLab extension that Lab's translator looks up, one JSON a line."""

import json
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "labextension" / "src"
_LITERAL = r"'((?:[^'\\]|\\.)*)'"
_ONE = re.compile(rf"\b(?:trans|words)\.__\(\s*{_LITERAL}")
_MANY = re.compile(rf"\b(?:trans|words)\._n\(\s*{_LITERAL},\s*{_LITERAL}")


def texts():
    """Return every text; one with a plural as it stands in a catalogue's key, the singular."""
    found = {}
    for path in sorted(SOURCE.rglob("*.ts*")):
        source = path.read_text(encoding="utf-8")
        for match in _ONE.finditer(source):
            found[_plain(match[1])] = ""
        for match in _MANY.finditer(source):
            found[_plain(match[1])] = _plain(match[2])
    return found


def _plain(literal):
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), literal)


if __name__ == "__main__":
    for text, plural in texts().items():
        print(json.dumps([text, plural] if plural else text, ensure_ascii=False))
    sys.exit(0)
