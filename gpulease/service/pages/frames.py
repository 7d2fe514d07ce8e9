"""Renders the frames of pages from templates, and the documentation as pages of the service.

Help is there where no other site can be reached.  The caller says what to render for whom.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpulease.errors import GPULeaseError
from gpulease.protocol.hub_names import split
from gpulease.service.languages import LANGUAGES, LOCALE, catalogue
from gpulease.texts import Text

HERE = Path(__file__).parent
NOBODY = "'none'"
STATIC = HERE / "static"


@dataclass(frozen=True)
class Site:
    """Where the pages and their hub stand, as a browser sees them.

    Attributes:
        prefix: path of the service, with a slash at both ends.
        hub_url: path or full address of the hub, ending in ``/hub/``.
        hub_origin: ``scheme://host`` of the hub where that differs from the service's own, else "".
        card_acts: whether the card on the hub's page may change something.  Where people's servers
            share the hub's domain, their pages may frame it and have a visitor click in it.
        docs_url: where people read more, "" for the service's own pages of the documentation; a
            slash at its end says that this documentation stands there.
    """

    prefix: str
    hub_url: str
    hub_origin: str = ""
    card_acts: bool = False
    docs_url: str = ""

    def __post_init__(self) -> None:
        if self.hub_origin:
            parts = urlsplit(self.hub_origin)
            if not parts.scheme or not parts.netloc or parts.path not in {"", "/"}:
                raise ValueError(f"hub_origin must be scheme://host, not {self.hub_origin!r}")

    @property
    def hub_source(self) -> str:
        """The hub as a source expression of the security policy."""
        return self.hub_origin.rstrip("/") or "'self'"

    def guide(self, page: str) -> str:
        """Address where people read what a page of the documentation is about."""
        where = self.docs_url or f"{self.prefix}guide/"
        return f"{where}{page}" if where.endswith("/") else where

    def hub(self, path: str) -> str:
        """Address of a hub page or asset."""
        return f"{self.hub_origin.rstrip('/')}{self.hub_url}{path}"


@dataclass(frozen=True)
class Frame:
    """One page: its path under the prefix, template, script module and title.

    ``guide``: the page of the documentation that is about it.
    """

    path: str
    template: str
    script: str
    title: str
    audience: str = "everyone"  # everyone | leaders | admins
    guide: str = "student.html"
    in_menu: bool = True
    framed: bool = False  # the hub shows it inside a page of its own


FRAMES = (
    Frame("", "student.html", "student.js", Text("My GPU")),
    Frame("card", "card.html", "card.js", Text("GPU"), in_menu=False, framed=True),
    Frame("group", "group.html", "group.js", Text("Groups"), "leaders", "instructor.html"),
    Frame("admin", "admin.html", "admin.js", Text("All leases"), "admins", "admin.html"),
    Frame("policy", "policy.html", "policy.js", Text("Policy"), "admins", "reference/policy.html"),
    Frame("health", "health.html", "health.js", Text("Health"), "admins", "runbooks.html"),
)
#: What the pages of the documentation have in common.
GUIDE = Frame("guide/", "guide.html", "", Text("Help"), guide="index.html", in_menu=False)


def content_security_policy(site: Site, *, framed: bool = False) -> str:
    """Only our own scripts run, nothing is inline, and nobody but the hub frames what it frames."""
    hub = site.hub_source
    own = "'self'" if hub == "'self'" else f"'self' {hub}"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src {own}",
            f"img-src {own} data:",
            f"font-src {own}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            f"frame-ancestors {hub if framed else NOBODY}",
        )
    )


@cache
def assets_version() -> str:
    """Short digest of every asset: a changed asset has a new address, an old one may be cached."""
    digest = hashlib.sha256()
    for root in (STATIC, LOCALE):
        for path in sorted(each for each in root.rglob("*") if each.is_file()):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def _environment(language: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.install_gettext_translations(  # type: ignore[attr-defined]  # the extension's
        catalogue(language), newstyle=True
    )
    environment.globals |= {"language": language, "languages": LANGUAGES}
    return environment


def render(
    frame: Frame,
    site: Site,
    *,
    user: str,
    audiences: frozenset[str],
    xsrf: str,
    language: str,
    article: Page | None = None,
) -> str:
    """Return the markup of a frame for one reader.

    Args:
        frame: what to render.
        site: where it stands.
        user: the reader's name, as ``hub_names`` says.
        audiences: which of ``everyone``, ``leaders``, ``admins`` the reader belongs to.
        xsrf: the reader's token for changes.
        language: one of ``LANGUAGES``, the reader's.
        article: a page of the documentation that stands in it.
    """
    menu = [item for item in FRAMES if item.in_menu and item.audience in audiences]
    return (
        _environment(language)
        .get_template(frame.template)
        .render(
            frame=frame,
            menu=menu if len(menu) > 1 else [],
            site=site,
            user=user,
            user_path=quote(split(user)[1], safe=""),
            admin="admins" in audiences,
            xsrf=xsrf,
            article=article,
            assets=f"{site.prefix}static/{assets_version()}/",
        )
    )


def render_refusal(site: Site, problem: GPULeaseError, language: str) -> str:
    """Return the markup that says why a page is not shown; the reader may be nobody."""
    return (
        _environment(language)
        .get_template("refusal.html")
        .render(site=site, problem=problem, assets=f"{site.prefix}static/{assets_version()}/")
    )


#: A page's name as it stands in an address, without its ending.
GUIDE_PAGE: Final = "(?:reference/)?[a-z0-9-]+"
#: Where its pictures lie, beside the pages.
GUIDE_PICTURE: Final = "images/[a-z0-9-]+\\.png"
_PAGE = re.compile(r"(?!\w+:)([^#]*)\.md(#.*)?")


@dataclass(frozen=True)
class Page:
    """One page: its title, the markup of its text, and its parts by their anchors."""

    title: str
    markup: str
    contents: tuple[tuple[str, str], ...] = ()


def guide_folder() -> Path:
    """Return where the documentation lies: in a wheel beside the pages, in a clone at its top."""
    packed = HERE / "documentation"
    return packed if packed.is_dir() else HERE.parents[2] / "docs"


@cache
def guide_page(name: str) -> Page | None:
    """Return a page by its name, such as ``reference/policy``; None where there is none."""
    file = guide_folder() / f"{name}.md"
    if not file.is_file():
        return None
    from markdown_it import MarkdownIt  # few of those who run a service ever read here

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(file.read_text(encoding="utf-8"))
    title, slugs, contents = "", set[str](), list[tuple[str, str]]()
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            title = title or following.content
            anchor = _anchor(following.content, slugs)
            token.attrSet("id", anchor)
            if token.tag == "h2":
                contents.append((anchor, following.content.replace("`", "")))
        elif token.type == "table_open":
            token.attrSet("class", "table table-sm")
        for each in token.children or ():
            if each.type == "link_open" and (found := _PAGE.fullmatch(str(each.attrs["href"]))):
                each.attrSet("href", f"{found[1]}.html{found[2] or ''}")
    rendered: Any = reader.renderer.render(tokens, reader.options, {})
    return Page(title.replace("`", ""), rendered, tuple(contents))


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
