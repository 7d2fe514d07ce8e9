"""Frames as they are served: headers, what is in them for whom, escaping, assets."""

import gzip
import itertools
import re
import urllib.error
import urllib.request
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpulease.service.pages import PageReader, Site
from gpulease.service.pages.frames import FRAMES, STATIC, Frame, content_security_policy, render
from tests.pages.stage import XSRF, Stage

DOCS = Path(__file__).parents[2] / "docs"
ADMIN = PageReader("root", admin=True)
PATHS = [frame.path for frame in FRAMES]


def fetch(stage: Stage, path: str) -> tuple[int, Message, str]:
    try:
        with urllib.request.urlopen(stage.url + path, timeout=20) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


class Markup(HTMLParser):
    """What a frame is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, *names: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag in names]


def frame_text(path: str, **changes: object) -> str:
    frame = next(each for each in FRAMES if each.path == path)
    site = Site("/services/gpulease/", "/hub/")
    values = {"user": "ada", "audiences": frozenset({"everyone"}), "xsrf": "x"}
    values |= {"language": "en"} | changes
    return render(frame, site, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PATHS)
def test_no_script_or_style_is_inline(stage: Stage, path: str) -> None:
    stage.reader = ADMIN
    status, headers, text = fetch(stage, path)
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    markup = Markup(text)
    assert all(attrs.get("src") for attrs in markup.all("script"))
    assert not markup.all("style")
    for tag, attrs in markup.tags:
        assert not [n for n in attrs if n.startswith("on") or n == "style"], tag


@pytest.mark.parametrize("path", PATHS)
def test_only_the_card_is_framed_and_by_the_hub(stage: Stage, path: str) -> None:
    stage.reader = ADMIN
    _, headers, _ = fetch(stage, path)
    allowed = "'self'" if path == "card" else "'none'"
    assert headers["Content-Security-Policy"].endswith(f"frame-ancestors {allowed}")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_a_hub_at_another_origin_is_the_only_one_that_may_frame() -> None:
    site = Site("/services/gpulease/", "/hub/", hub_origin="https://hub.example.org")
    policy = content_security_policy(site, framed=True)
    assert policy.endswith("frame-ancestors https://hub.example.org")
    assert "style-src 'self' https://hub.example.org;" in policy
    assert "script-src 'self';" in policy
    assert site.hub("home") == "https://hub.example.org/hub/home"


@pytest.mark.parametrize("origin", ["hub.example.org", "https://x/; script-src *", "https://"])
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="hub_origin"):
        Site("/services/gpulease/", "/hub/", hub_origin=origin)


@pytest.mark.parametrize("path", PATHS)
def test_the_token_for_changes_is_in_the_page(stage: Stage, path: str) -> None:
    stage.reader = ADMIN
    tokens = [a for a in Markup(fetch(stage, path)[2]).all("meta") if a.get("name")]
    assert {a["name"]: a.get("content") for a in tokens}["gpulease-xsrf"] == XSRF


@pytest.mark.parametrize(
    ("reader", "refused"),
    [
        (PageReader("ada"), {"group", "admin", "policy", "health"}),
        (PageReader("ida", leads=("cs101",)), {"admin", "policy", "health"}),
        (ADMIN, set()),
    ],
)
def test_a_page_is_refused_to_whom_it_is_not_for(
    stage: Stage, reader: PageReader, refused: set[str]
) -> None:
    stage.reader = reader
    found = {path for path in PATHS if fetch(stage, path)[0] == 403}
    assert found == refused


def test_a_refusal_is_a_page_that_says_what_next(stage: Stage) -> None:
    stage.reader = PageReader("<b>ada</b>")
    status, headers, text = fetch(stage, "admin")
    assert status == 403
    assert "text/html" in headers["Content-Type"]
    assert "logged in as &lt;b&gt;ada&lt;/b&gt;" in text
    assert "ask an admin" in text
    assert "script-src 'self'" in headers["Content-Security-Policy"]


def test_the_address_without_its_last_slash_leads_there(stage: Stage) -> None:
    with urllib.request.urlopen(stage.url.rstrip("/"), timeout=20) as answer:
        assert answer.url == stage.url


def test_the_menu_offers_only_what_will_open() -> None:
    student = frame_text("")
    assert "/services/gpulease/admin" not in student
    leader = frame_text("", audiences=frozenset({"everyone", "leaders"}))
    assert 'href="/services/gpulease/group"' in leader
    assert "/services/gpulease/policy" not in leader
    admin = frame_text("policy", audiences=frozenset({"everyone", "leaders", "admins"}))
    current = [a for a in Markup(admin).all("a") if a.get("aria-current")]
    assert [a["href"] for a in current] == ["/services/gpulease/policy"]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.path)
def test_each_page_links_the_part_of_the_documentation_that_is_about_it(frame: Frame) -> None:
    def help_of(docs_url: str) -> list[str | None]:
        site = Site("/services/gpulease/", "/hub/", docs_url=docs_url)
        text = render(
            frame, site, user="ada", audiences=frozenset({"everyone"}), xsrf="x", language="en"
        )
        return [a["href"] for a in Markup(text).all("a") if a.get("id") == "gl-docs"]

    if frame.framed:  # stands within the hub's own page
        return
    assert help_of("") == [f"/services/gpulease/guide/{frame.guide}"]
    assert help_of("https://wiki.example.org/gpu") == ["https://wiki.example.org/gpu"]
    assert help_of("https://docs.example.org/") == [f"https://docs.example.org/{frame.guide}"]
    assert (DOCS / frame.guide).with_suffix(".md").is_file()


def test_a_name_never_becomes_markup() -> None:
    name = '"><script>alert(1)</script>'
    text = frame_text("", user=name, xsrf='"><b>')
    assert "<script>alert" not in text
    assert "<b>" not in text
    metas = {a.get("name"): a.get("content") for a in Markup(text).all("meta")}
    assert metas["gpulease-user"] == name
    assert metas["gpulease-user-path"] == "%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E"


@pytest.mark.parametrize("path", PATHS)
def test_headings_are_in_order_and_controls_have_names(path: str) -> None:
    text = frame_text(path, audiences=frozenset({"everyone", "leaders", "admins"}))
    levels = [int(level) for level in re.findall(r"<h([1-6])", text)]
    assert levels.count(1) == 1
    outside_dialog = [
        int(n)
        for n in re.findall(r"<h([1-6])", re.sub(r"<dialog.*?</dialog>", "", text, flags=re.DOTALL))
    ]
    assert outside_dialog[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(outside_dialog))
    markup = Markup(text)
    labelled = {attrs.get("for") for attrs in markup.all("label")}
    for attrs in markup.all("textarea", "select", "input"):
        assert attrs.get("id") in labelled or attrs.get("aria-label")
    for attrs in markup.all("img"):
        assert attrs.get("alt")
    assert 'lang="en"' in text


def test_assets_are_cached_under_an_address_that_names_their_content(stage: Stage) -> None:
    _, _, text = fetch(stage, "")
    address = next(a["src"] for a in Markup(text).all("script") if a.get("type") == "module")
    assert address is not None
    status, headers, body = fetch(stage, address.removeprefix("/services/gpulease/"))
    assert status == 200
    assert body == (STATIC / "student.js").read_text()
    assert "javascript" in headers["Content-Type"]
    assert "max-age=31536000" in headers["Cache-Control"]


@pytest.mark.parametrize(
    ("path", "headers", "compressed"),
    [
        ("static/v/lib/calendar.js", {}, True),
        ("static/v/gpulease.css", {}, True),
        ("static/v/texts/de.js", {}, True),
        ("static/v/student.js", {"Accept-Encoding": "identity"}, False),
        ("static/v/student.js", {"Range": "bytes=0-4000"}, False),
        ("group", {}, False),  # the token for changes is in it
        ("api/policy/schema", {"X-XSRFToken": XSRF}, False),
    ],
)
def test_assets_alone_are_compressed(
    stage: Stage, path: str, headers: dict[str, str], compressed: bool
) -> None:
    stage.reader = ADMIN
    asked = urllib.request.Request(stage.url + path, headers={"Accept-Encoding": "gzip"} | headers)
    with urllib.request.urlopen(asked, timeout=20) as response:
        assert (response.headers.get("Content-Encoding") == "gzip") is compressed
        body = response.read()
    assert len(gzip.decompress(body) if compressed else body) > 4000


@pytest.mark.parametrize(
    "path", ["static/v/../frames.py", "static/v/%2e%2e/routes.py", "static/v/nothing.js", "nothing"]
)
def test_nothing_else_is_served(stage: Stage, path: str) -> None:
    assert fetch(stage, path)[0] in {403, 404}


@pytest.mark.parametrize("script", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_scripts_never_parse_data_as_markup(script: Path) -> None:
    text = script.read_text()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in text
