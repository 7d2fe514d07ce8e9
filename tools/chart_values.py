"""Writes the chart's values.yaml from its schema: `python tools/chart_values.py`.

Each value's sentence and default stand in `chart/values.schema.json` and nowhere else.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "chart"
SCHEMA, VALUES = CHART / "values.schema.json", CHART / "values.yaml"
HEAD = "# Written from values.schema.json by tools/chart_values.py.\n"


def rendered(schema: dict[str, Any]) -> str:
    """Return the values file of a schema."""
    return HEAD + "".join(f"{line}\n" for line in _lines(schema, ""))


def _lines(schema: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in schema["properties"].items():
        if name == "global":
            continue
        if not indent:
            yield ""
        for line in wrap(value["description"], 98 - len(indent)):
            yield f"{indent}# {line}"
        if "default" not in value:
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
            continue
        text = yaml.safe_dump({name: value["default"]}, sort_keys=False, width=1000)
        for line in text.splitlines():
            yield f"{indent}{line}"


if __name__ == "__main__":
    found = json.loads(SCHEMA.read_text(encoding="utf-8"))
    VALUES.write_text(rendered(found), encoding="utf-8")
