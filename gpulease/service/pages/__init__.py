"""The service's pages, in the hub's own look.

A page's frame holds no data.  Every figure comes to the browser by the same REST and events that
everybody else uses, so a page can do nothing that the API does not allow.  Here are the routes: who
may open which page, and the headers of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tornado.web import RedirectHandler, RequestHandler, StaticFileHandler

from gpulease.errors import GPULeaseError
from gpulease.service.languages import ENGLISH, LANGUAGES, language_of, script
from gpulease.service.pages import frames
from gpulease.service.pages.frames import (
    FRAMES,
    GUIDE,
    STATIC,
    Frame,
    Site,
    content_security_policy,
    render,
    render_refusal,
)
from gpulease.service.rest.base import ACCESS, needs_scope
from gpulease.texts import Text


@dataclass(frozen=True)
class PageReader:
    """Who opens a page: the name, and which pages beyond the student's are theirs."""

    name: str
    admin: bool = False
    leads: tuple[str, ...] = ()  # groups whose leases the reader may see

    @property
    def audiences(self) -> frozenset[str]:
        """The audiences of frames that this reader belongs to."""
        found = {"everyone"}
        if self.leads or self.admin:
            found.add("leaders")
        if self.admin:
            found.add("admins")
        return frozenset(found)


__all__ = ["PageReader", "Site", "handlers"]

ReaderOf = Callable[[RequestHandler], PageReader]
Route = tuple[str, type[RequestHandler], dict[str, Any]]


class Pictures(StaticFileHandler):
    """The pictures of the documentation; nothing secret either."""

    def set_extra_headers(self, path: str) -> None:  # noqa: ARG002
        """Content is what its type says."""
        self.set_header("X-Content-Type-Options", "nosniff")


class Assets(Pictures):
    """Scripts and styles.  They hold nothing secret, so they need no log-in."""

    @classmethod
    def get_absolute_path(cls, root: str, path: str) -> str:
        """Drop the version from the address; it is there so that a change is a new address."""
        _, _, name = path.partition("/")
        return super().get_absolute_path(root, name)

    def get_cache_time(self, path: str, modified: Any, mime_type: str) -> int:  # noqa: ARG002
        """Cache a year: the address names the content."""
        return 365 * 86400


class Texts(RequestHandler):
    """The texts that scripts use, in one language."""

    def get(self, language: str) -> None:
        """Answer them as a script; like an asset, its address names the content."""
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", f"public, max-age={365 * 86400}")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(script(language))


def _page_handler(
    base: type[RequestHandler], site: Site, reader_of: ReaderOf
) -> type[RequestHandler]:
    class PageHandler(base):  # type: ignore[misc, valid-type]
        """Answers one frame."""

        frame: Frame

        def initialize(self, frame: Frame, **rest: Any) -> None:
            super().initialize(**rest)
            self.frame = frame
            self.may_be_framed = frame.framed
            self.set_default_headers()  # once more: now it is known which page it is

        def set_default_headers(self) -> None:
            super().set_default_headers()
            framed = hasattr(self, "frame") and self.frame.framed
            self.set_header("Content-Security-Policy", content_security_policy(site, framed=framed))
            self.set_header("X-Content-Type-Options", "nosniff")
            self.set_header("Referrer-Policy", "same-origin")
            self.set_header("Cache-Control", "no-store")

        @needs_scope(ACCESS)
        async def get(self) -> None:
            self.show(self.frame)

        def show(self, frame: Frame, article: frames.Page | None = None) -> None:
            reader = reader_of(self)
            if frame.audience not in reader.audiences:
                raise _not_for(reader, frame)
            token = self.xsrf_token
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.finish(
                render(
                    frame,
                    site,
                    user=reader.name,
                    audiences=reader.audiences,
                    xsrf=token.decode() if isinstance(token, bytes) else token,
                    language=language_of(self.request),
                    article=article,
                )
            )

        def refuse(self, problem: GPULeaseError) -> None:
            """Say in the pages' look why there is no page."""
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.finish(render_refusal(site, problem, language_of(self.request)))

    return PageHandler


def _missing_handler(page: type[RequestHandler]) -> type[RequestHandler]:
    class MissingPage(page):  # type: ignore[misc, valid-type]
        """Answers every address that is no page's, in the pages' look."""

        @needs_scope(ACCESS)
        async def get(self) -> None:
            raise _no_page()

    return MissingPage


def _guide_handler(page: type[RequestHandler]) -> type[RequestHandler]:
    class GuidePage(page):  # type: ignore[misc, valid-type]
        """Answers a page of the documentation."""

        @needs_scope(ACCESS)
        async def get(self, name: str) -> None:
            found = frames.guide_page(name)
            if found is None:
                raise _no_page()
            frame = replace(self.frame, path=f"guide/{name}.html", title=found.title)
            self.show(frame, found)

    return GuidePage


def _no_page() -> GPULeaseError:
    return GPULeaseError(
        "not_found",
        Text("There is no page at this address."),
        next_step=Text("Your GPUs are on the page My GPU."),
    )


def _not_for(reader: PageReader, frame: Frame) -> GPULeaseError:
    who = {"page": frame.title, "user": reader.name}
    return GPULeaseError(
        "not_your_page",
        (
            Text("The page “{page}” is for GPU admins; you are logged in as {user}.", **who)
            if frame.audience == "admins"
            else Text("The page “{page}” is for instructors; you are logged in as {user}.", **who)
        ),
        next_step=Text("Log in as somebody else, or ask an admin."),
    )


def handlers(base: type[RequestHandler], site: Site, reader_of: ReaderOf) -> Sequence[Route]:
    """Return the routes of all pages and their assets.

    Args:
        base: authenticates before its method runs (a navigation by redirect to log-in).
        site: where the pages stand.
        reader_of: says who an authenticated request is from.
    """
    page = _page_handler(base, site, reader_of)
    prefix = re.escape(site.prefix)
    routes: list[Route] = [(f"{prefix}{frame.path}", page, {"frame": frame}) for frame in FRAMES]
    others = "|".join(language for language in LANGUAGES if language != ENGLISH)
    routes.append((f"{prefix}static/[^/]+/texts/({others})\\.js", Texts, {}))
    routes.append((f"{prefix}static/(.*)", Assets, {"path": str(STATIC)}))
    routes.append(
        (f"{prefix}guide/({frames.GUIDE_PAGE})\\.html", _guide_handler(page), {"frame": GUIDE})
    )
    pictures = {"path": str(frames.guide_folder())}
    routes.append((f"{prefix}guide/({frames.GUIDE_PICTURE})", Pictures, pictures))
    # JupyterLab knows this address alone, and not where the site's documentation stands.
    help_page = {"url": site.guide("student.html"), "permanent": False}
    routes.append((f"{prefix}help", RedirectHandler, help_page))
    routes.append((f"{prefix}(?!api/).+", _missing_handler(page), {"frame": FRAMES[0]}))
    routes.append((prefix.rstrip("/"), RedirectHandler, {"url": site.prefix}))
    return routes
