"""What answers where: the routes of the service, and the applications of its hubs.

Only that hub's own application answers an address under its path.  Each application has its own
log-in and its own names, and does not accept another hub's log-in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.routing import AnyMatches, PathMatches, Router, Rule, RuleRouter
from tornado.web import Application, GZipContentEncoding, RequestHandler

from gpulease.protocol.hub_names import ONE_HUB, HubNames
from gpulease.service import pages
from gpulease.service.context import Services
from gpulease.service.hubs.auth import ServiceOAuth
from gpulease.service.pages import PageReader, Site
from gpulease.service.rest import leases, projects, reservations, sockets
from gpulease.service.rest import site as rest_site
from gpulease.service.rest.answering import Answers, NotFound
from gpulease.service.rest.base import LogIn, Operation, PageBase, operations
from gpulease.service.rest.openapi import Description
from gpulease.service.settings.options import Options
from gpulease.service.settings.reading import FurtherHub


def first_log_in(options: Options) -> ServiceOAuth:
    """Return the log-in of the hub whose service this is, from its ``JUPYTERHUB_*`` environment."""
    found = ServiceOAuth(parent=None)
    found.base_url = options.prefix
    return _lax(found)


def log_in_of(hub: FurtherHub) -> ServiceOAuth:
    """Return the log-in of a further hub; nothing of it is the first hub's environment's."""
    found = ServiceOAuth(
        parent=None,
        api_url=hub.api_url,
        api_token=hub.token,
        base_url=hub.prefix,
        hub_host="",
        hub_prefix=f"{hub.base}hub/",
        access_scopes={f"access:services!service={hub.service_name}"},
        oauth_client_id=f"service-{hub.service_name}",
        oauth_redirect_uri=f"{hub.prefix}oauth_callback",
        oauth_authorization_url=f"{hub.base}hub/api/oauth2/authorize",
        oauth_token_url=f"{hub.api_url}/oauth2/token",
        keyfile="",
        certfile="",
        client_ca="",
    )
    return _lax(found)


def front(services: Services, options: Options, log_in: ServiceOAuth, secret: bytes) -> Router:
    """Return what answers everything.

    Args:
        services: the parts of the service.
        options: what it is told.
        log_in: the first hub's.
        secret: what cookies are signed with follows from it.
    """
    names = frozenset(hub.name for hub in options.hubs)
    first = Site(
        options.prefix,
        options.hub_path,
        options.hub_origin,
        options.card_acts,
        options.docs_url,
    )
    # Derived, so that a restarted service knows the browsers' cookies.
    cookies = hmac.new(secret, b"cookies", hashlib.sha256).digest()
    main = application(services, log_in, first, cookies, HubNames("", names))
    if not options.hubs:
        return main
    rules = []
    for hub in options.hubs:
        site = Site(
            hub.prefix, f"{hub.base}hub/", card_acts=hub.trusted_servers, docs_url=options.docs_url
        )
        own = hmac.new(secret, f"cookies {hub.name}".encode(), hashlib.sha256).digest()
        parts = replace(services, prefix=hub.prefix)
        app = application(parts, log_in_of(hub), site, own, HubNames(hub.name, names))
        rules.append(Rule(PathMatches(f"{re.escape(hub.prefix.rstrip('/'))}(?:/.*)?"), app))
    return RuleRouter([*rules, Rule(AnyMatches(), main)])


def _lax(log_in: ServiceOAuth) -> ServiceOAuth:
    # Not "Strict": the way back from the hub's log-in may begin at another site.
    log_in.cookie_options = {"samesite": "Lax", **log_in.cookie_options}
    return log_in


_PARTS = {"{id}": r"([A-Za-z0-9_-]{1,64})", "{version}": r"([0-9]{1,9})"}
#: Bytes of one websocket message.
_MESSAGE_MAX = 2 * 2**20


#: The addresses of the API, as its description writes them.
API: Mapping[str, type[RequestHandler]] = {
    "leases": leases.Leases,
    "leases/{id}": leases.OneLease,
    "leases/{id}/keep": leases.Keep,
    "leases/{id}/upgrade": leases.Upgrade,
    "leases/{id}/put-back": leases.PutBack,
    "leases/{id}/connections": leases.Connections,
    "leases/{id}/events": leases.LeaseEvents,
    "leases/{id}/use": leases.LeaseUse,
    "leases/{id}/why": leases.Why,
    "leases/{id}/supervisor": sockets.SupervisorSocket,
    "warm": sockets.WarmSocket,
    "agents/batches": rest_site.AgentBatches,
    "classes": leases.Classes,
    "servers": leases.ServerList,
    "groups": projects.Groups,
    "groups/members": projects.Members,
    "messages": projects.MessageList,
    "messages/{id}": projects.OneMessage,
    "alerts": rest_site.AlertList,
    "incidents": rest_site.IncidentList,
    "audit": rest_site.AuditList,
    "devices": rest_site.DeviceList,
    "me": rest_site.Me,
    "projects": projects.ProjectList,
    "usage": projects.UsageReport,
    "usage.csv": projects.UsageTable,
    "usage/devices": projects.Devices,
    "usage/devices.csv": projects.DevicesTable,
    "usage/timeline": projects.Timeline,
    "usage/timeline.csv": projects.TimelineTable,
    "policy": rest_site.Policy,
    "policy/schema": rest_site.PolicySchema,
    "policy/check": rest_site.PolicyCheck,
    "policy/time-outs": rest_site.PolicyTimeOuts,
    "whatif": rest_site.WhatIf,
    "policy/versions": rest_site.PolicyVersions,
    "policy/versions/{version}": rest_site.PolicyVersion,
    "closures": reservations.ClosureList,
    "reservations": reservations.ReservationList,
    "reservations.ics": reservations.ReservationCalendar,
    "reservations/apply": reservations.ReservationApply,
    "reservations/check": reservations.ReservationCheck,
    "reservations/{id}/attendance.csv": reservations.ReservationAttendance,
    "reservations/{id}": reservations.OneReservation,
    "runs": leases.RunList,
    "runs/{id}": leases.OneRun,
    "runs/{id}/events": leases.RunEvents,
    "runs/{id}/reports": leases.RunReports,
    "events": sockets.EventsSocket,
    "health": rest_site.Health,
    "openapi.json": rest_site.OpenAPI,
}


class Callback(LogIn, HubOAuthCallbackHandler, Answers):
    """Where the hub sends a browser back to after log-in."""

    as_page = True


#: What can be done at them.
OPERATIONS: Sequence[Operation] = tuple(operations(API))


def _pattern(path: str) -> str:
    return "/".join(_PARTS.get(part, re.escape(part)) for part in path.split("/"))


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
    services: Services,
    hub_auth: ServiceOAuth,
    site: Site,
    cookie_secret: bytes,
    names: HubNames = ONE_HUB,
) -> Application:
    """Return the tornado application of one hub's path; ``names`` are those of its people."""
    prefix = services.prefix
    api = f"{prefix}api/"
    routes: list[Any] = [
        *((api + _pattern(path), handler) for path, handler in API.items()),
        (rf"{prefix}metrics", rest_site.MetricsPage),
        (rf"{prefix}oauth_callback", Callback),
        *pages.handlers(PageBase, site, reader_of),
    ]
    return Application(
        routes,
        transforms=[CompressedAssets],
        default_handler_class=NotFound,
        services=services,
        hub_auth=hub_auth,
        hub_names=names,
        cookie_secret=cookie_secret,
        description=Description(prefix, OPERATIONS),
        # The page says the token to its own script; nothing else reads the cookie.
        xsrf_cookie_kwargs={"samesite": "Lax", "httponly": True},
        websocket_ping_interval=20,
        websocket_ping_timeout=20,
        websocket_max_message_size=_MESSAGE_MAX,
    )


_ASSET: Final = re.compile(r"/static/[^/]+/[\w/.-]+\.(js|css)")


class CompressedAssets(GZipContentEncoding):
    """Tornado's own compression, of assets alone.

    Other answers hold a token or a person's words: what is compressed beside a secret can tell it
    by its length (BREACH).
    """

    def __init__(self, request: HTTPServerRequest) -> None:
        super().__init__(request)
        # A range is of the bytes as they are.
        self._asset = bool(_ASSET.search(request.path)) and "Range" not in request.headers

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Compress the beginning of an asset."""
        if not self._asset:
            return status_code, headers, chunk
        return super().transform_first_chunk(status_code, headers, chunk, finishing)

    def transform_chunk(self, chunk: bytes, finishing: bool) -> bytes:
        """Compress what follows."""
        return super().transform_chunk(chunk, finishing) if self._asset else chunk
