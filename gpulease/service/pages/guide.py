"""The documentation as pages of the service: help is there where no other site can be reached."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpulease.service.pages.frames import HERE

#: A page's name as it stands in an address, without its ending.
NAME: Final = "(?:reference/)?[a-z0-9-]+"
#: Where its pictures lie, beside the pages.
PICTURE: Final = "images/[a-z0-9-]+\\.png"
_PAGE = re.compile(r"(?!\w+:)([^#]*)\.md(#.*)?")


@dataclass(frozen=True)
class Page:
    """One page: its title and the markup of its text."""

    title: str
    markup: str


def folder() -> Path:
    """Return where the documentation lies: in a wheel beside the pages, in a clone at its top."""
    packed = HERE / "documentation"
    return packed if packed.is_dir() else HERE.parents[2] / "docs"


@cache
def page(name: str) -> Page | None:
    """Return a page by its name, such as ``reference/policy``; None where there is none."""
    file = folder() / f"{name}.md"
    if not file.is_file():
        return None
    from markdown_it import MarkdownIt  # few of those who run a service ever read here

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(file.read_text(encoding="utf-8"))
    title, slugs = "", set[str]()
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            title = title or following.content
            token.attrSet("id", _anchor(following.content, slugs))
        elif token.type == "table_open":
            token.attrSet("class", "table table-sm")
        for each in token.children or ():
            if each.type == "link_open" and (found := _PAGE.fullmatch(str(each.attrs["href"]))):
                each.attrSet("href", f"{found[1]}.html{found[2] or ''}")
    rendered: Any = reader.renderer.render(tokens, reader.options, {})
    return Page(title.replace("`", ""), rendered)


def _anchor(heading: str, taken: set[str]) -> str:
    """Return a heading's name in addresses, as ``make docs`` names it, too."""
    plain = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
    name = first = re.sub(r"[-\s]+", "-", plain)
    number = 0
    while name in taken:
        number += 1
        name = f"{first}_{number}"
    taken.add(name)
    return name
