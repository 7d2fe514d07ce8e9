"""The documentation as the service shows it: each page, each link and each picture is there."""

import re
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from posixpath import normpath

import pytest

from gpulease.service.pages import frames
from gpulease.service.pages.frames import FRAMES
from tests.pages.stage import Stage
from tests.pages.test_frames import fetch

PAGES = sorted(
    str(file.relative_to(frames.guide_folder()).with_suffix(""))
    for file in frames.guide_folder().rglob("*.md")
)

ROOT = Path(__file__).parents[2]
#: What people read beside the documentation.
PRODUCT = ("gpulease", "labextension/src", "chart", "hub_config", "testcluster")
#: How it names a page of ours: ``docs/runbooks.md#errors``.  Another project's has its address.
NAMED = re.compile(r"(?<![\w/.-])docs/([a-z0-9/-]+)\.md(?:#([\w-]+))?")


class Read(HTMLParser):
    """What a page leads to, and where in it one can be led."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.anchors: set[str] = set()
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a":
            self.links.append(str(found["href"]))
        elif tag == "img":
            self.pictures.append(str(found["src"]))
        if found.get("id"):
            self.anchors.add(str(found["id"]))


def reading(name: str) -> Read:
    page = frames.guide_page(name)
    assert page is not None, name
    assert page.title
    return Read(page.markup)


def beside(name: str, path: str) -> str:
    return normpath(f"{name}/../{path}")


@pytest.mark.parametrize("name", PAGES)
def test_each_page_leads_to_what_is_there(name: str) -> None:
    assert re.fullmatch(frames.GUIDE_PAGE, name)
    found = reading(name)
    pictures = found.pictures + [link for link in found.links if link.endswith(".png")]
    for link in found.links:
        if re.match(r"\w+:", link) or link in pictures:
            continue
        address, _, anchor = link.partition("#")
        other = beside(name, address.removesuffix(".html")) if address else name
        assert not address or address.endswith(".html"), link
        assert other in PAGES, link
        assert not anchor or anchor in reading(other).anchors, link
    for picture in pictures:
        where = beside(name, picture)
        assert re.fullmatch(frames.GUIDE_PICTURE, where)
        assert (frames.guide_folder() / where).is_file()


def test_each_page_that_a_text_of_the_product_names_is_there() -> None:
    files = [file for folder in PRODUCT for file in (ROOT / folder).rglob("*") if file.is_file()]
    named = {
        (file.name, *found)
        for file in [*files, *ROOT.glob("*.md")]
        for found in NAMED.findall(file.read_text(encoding="utf-8", errors="ignore"))
    }
    assert any(anchor for _, _, anchor in named)
    missing = [
        (file, name, anchor)
        for file, name, anchor in named
        if name not in PAGES or (anchor and anchor not in reading(name).anchors)
    ]
    assert missing == []


def test_headings_of_one_name_are_two_places() -> None:
    taken: set[str] = set()
    names = [frames._anchor(heading, taken) for heading in ("What `it` costs", "What it costs")]
    assert names == ["what-it-costs", "what-it-costs_1"]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.path)
def test_who_is_logged_in_reads_the_page_that_help_leads_to(stage: Stage, frame) -> None:
    status, headers, text = fetch(stage, f"guide/{frame.guide}")
    page = frames.guide_page(frame.guide.removesuffix(".html"))
    assert page is not None
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    assert page.markup.strip() in text
    assert f"<title>{page.title} - GPU leases</title>" in text


def test_jupyterlab_is_led_to_the_page_for_students(stage: Stage) -> None:
    assert "<title>For students - GPU leases</title>" in fetch(stage, "help")[2]


def test_a_picture_is_given_and_nothing_else_that_lies_there(stage: Stage) -> None:
    with urllib.request.urlopen(f"{stage.url}guide/images/admin.png", timeout=20) as response:
        assert response.headers["Content-Type"] == "image/png"
        assert response.read() == (frames.guide_folder() / "images" / "admin.png").read_bytes()
    for path in ("guide/student.md", "guide/nothing.html", "guide/images/../student.md"):
        assert fetch(stage, path)[0] == 404


def test_a_page_of_several_parts_lists_them_first(stage: Stage) -> None:
    _, _, text = fetch(stage, "guide/student.html")
    contents, _, article = text.partition("<article")
    parts = [link for link in Read(contents).links if link.startswith("#") and link != "#main"]
    assert parts[0] == "#run-a-cell-on-a-gpu"
    assert {link[1:] for link in parts} < Read(article).anchors
