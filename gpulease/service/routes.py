"""The addresses of the service.

Owns which handler answers where.
"""

from __future__ import annotations

from typing import Any

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.web import Application, RequestHandler

from gpulease.service import agents, pages, rest_leases, rest_reservations, rest_site, sockets
from gpulease.service.auth import ServiceOAuth
from gpulease.service.base import Answers, NotFound, PageBase
from gpulease.service.pages import PageReader, Site
from gpulease.service.parts import Services

_ID = r"([A-Za-z0-9_-]{1,64})"
#: Bytes of one websocket message.
_MESSAGE_MAX = 2 * 2**20


class Callback(HubOAuthCallbackHandler, Answers):
    """Where the hub sends a browser back to after log-in."""

    as_page = True

    @property
    def hub_auth(self) -> ServiceOAuth:
        """The hub's log-in for this service."""
        found: ServiceOAuth = self.settings["hub_auth"]
        return found

    def get_current_user(self) -> Any:
        """Return nobody: the parent's way blocks the loop, and nobody is logged in yet."""
        return None


def reader_of(handler: RequestHandler) -> PageReader:
    """Return who opened a page."""
    assert isinstance(handler, PageBase)
    asker = handler.asker
    leads = ("*",) if asker.leads_all else asker.leads
    return PageReader(asker.name, admin=asker.admin, leads=leads)


def figures(services: Services) -> Application:
    """Return the tornado application of the address that is for Prometheus alone."""
    routes: list[Any] = [(r"/metrics", rest_site.Figures)]
    return Application(routes, default_handler_class=NotFound, services=services)


def application(
    services: Services, hub_auth: ServiceOAuth, site: Site, cookie_secret: bytes
) -> Application:
    """Return the tornado application."""
    prefix = services.prefix
    api = f"{prefix}api/"
    routes: list[Any] = [
        (rf"{api}leases", rest_leases.Leases),
        (rf"{api}leases/{_ID}", rest_leases.OneLease),
        (rf"{api}leases/{_ID}/keep", rest_leases.Keep),
        (rf"{api}leases/{_ID}/connections", rest_leases.Connections),
        (rf"{api}leases/{_ID}/events", rest_leases.LeaseEvents),
        (rf"{api}leases/{_ID}/supervisor", sockets.SupervisorSocket),
        (rf"{api}agents/batches", agents.AgentBatches),
        (rf"{api}classes", rest_leases.Classes),
        (rf"{api}servers", rest_leases.Servers),
        (rf"{api}incidents", rest_site.IncidentList),
        (rf"{api}me", rest_site.Me),
        (rf"{api}policy", rest_site.Policy),
        (rf"{api}policy/check", rest_site.PolicyCheck),
        (rf"{api}policy/versions", rest_site.PolicyVersions),
        (rf"{api}policy/versions/([0-9]{{1,9}})", rest_site.PolicyVersion),
        (rf"{api}reservations", rest_reservations.ReservationList),
        (rf"{api}reservations\.ics", rest_reservations.ReservationCalendar),
        (rf"{api}reservations/check", rest_reservations.ReservationCheck),
        (rf"{api}reservations/{_ID}", rest_reservations.OneReservation),
        (rf"{api}(?:projects|usage|whatif)(?:/.*)?", rest_site.NotYet),
        (rf"{api}events", sockets.EventsSocket),
        (rf"{api}health", rest_site.Health),
        (rf"{api}openapi\.json", rest_site.OpenAPI),
        (rf"{prefix}metrics", rest_site.MetricsPage),
        (rf"{prefix}oauth_callback", Callback),
        *pages.handlers(PageBase, site, reader_of),
    ]
    return Application(
        routes,
        default_handler_class=NotFound,
        services=services,
        hub_auth=hub_auth,
        cookie_secret=cookie_secret,
        # The page says the token to its own script; nothing else reads the cookie.
        xsrf_cookie_kwargs={"samesite": "Lax", "httponly": True},
        websocket_ping_interval=20,
        websocket_ping_timeout=20,
        websocket_max_message_size=_MESSAGE_MAX,
    )
