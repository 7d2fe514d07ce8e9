"""The tables of the reference are what the code says, and the code says something of everything."""

import re

import pytest

from gpulease.policy import document
from gpulease.protocol.asks import AskBody
from gpulease.service.routes import OPERATIONS
from gpulease.service.settings.options import KubernetesSettings
from tools import reference

TABLES = [page for page in reference.pages() if reference.BLOCK.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.stem)
def test_a_page_has_the_tables_that_the_code_makes(page):
    text = page.read_text(encoding="utf-8")
    assert text == reference.written(text), "run make reference"


def test_every_table_has_its_place():
    marks = {
        mark.split()[0]
        for page in TABLES
        for mark in re.findall(r'"generated: ([^"]+)"', page.read_text(encoding="utf-8"))
    }
    assert marks == set(reference.MAKERS)


def test_every_section_of_the_policy_has_a_table():
    text = (reference.ROOT / "docs/reference/policy.md").read_text(encoding="utf-8")
    shown = re.findall(r'"generated: policy (\w+)', text)
    sections = {
        name
        for name, each in document.json_schema()["properties"].items()
        if each["type"] == "object"
    }
    assert set(shown) == sections


def test_nothing_is_left_without_a_description():
    bare = [
        row
        for page in TABLES
        for _, made in reference.BLOCK.findall(page.read_text(encoding="utf-8"))
        for row in made.splitlines()
        if row.endswith("|  |")
    ]
    assert bare == []


def test_the_tables_are_of_what_is_there_and_of_nothing_else():
    """The maker of each table is held to its source by another way than its own."""
    made = {name: reference.written(f'[//]: # "generated: {name}"\n\n[//]: # "end"') for name in (
        "rest", "rest ask", "policy limits", "settings kubernetes"
    )}  # fmt: skip
    rows = {name: re.findall(r"^\| `([^`]+)`", text, re.MULTILINE) for name, text in made.items()}
    assert rows == {
        "rest": [f"{each.method.upper()} {each.path}" for each in OPERATIONS],
        "rest ask": list(AskBody.__annotations__),
        "policy limits": list(document.json_schema()["properties"]["limits"]["properties"]),
        "settings kubernetes": sorted(KubernetesSettings.class_own_traits(config=True)),
    }
