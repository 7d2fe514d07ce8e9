"""The expected ask of every kind, as the reference page states it."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from gpulease.policy.document import parse
from gpulease.policy.model import GPUClass
from testcluster.own_chart import LOADER

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kubernetes-asks.md"


@dataclass(frozen=True)
class Expected:
    name: str
    gpu_class: GPUClass
    count: int
    words: dict
    slot_units: int


@cache
def expected_asks() -> list[Expected]:
    found = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        blocks = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
        assert len(blocks) == 2, section
        assert "\nSource: " in section
        ask, words = (yaml.load(block, Loader=LOADER) for block in blocks)
        found.append(
            Expected(
                section.partition("\n")[0],
                class_of(ask["pod"], ask["count"]),
                ask["count"],
                words,
                ask.get("slot_units", 1),
            )
        )
    return found


def class_of(pod: dict, max_count: int = 1) -> GPUClass:
    """Return the class of a policy document with this section."""
    document = {
        "pools": {"cards": {"evidence": "cells"}},
        "classes": {"gpu": {"pool": "cards", "max_count": max_count, "pod": pod}},
    }
    return parse(yaml.safe_dump(document)).classes[0]
