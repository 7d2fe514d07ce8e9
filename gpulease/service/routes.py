"""The addresses of the service.

Owns which handler answers where.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.web import Application, RequestHandler

from gpulease.hub_names import ONE_HUB, HubNames
from gpulease.service import pages
from gpulease.service.context import Services
from gpulease.service.hubs.auth import ServiceOAuth
from gpulease.service.pages import PageReader, Site
from gpulease.service.rest import (
    agents,
    groups,
    leases,
    projects,
    reservations,
    runs,
    sockets,
)
from gpulease.service.rest import site as rest_site
from gpulease.service.rest.answering import Answers, NotFound
from gpulease.service.rest.base import LogIn, PageBase
from gpulease.service.rest.openapi import Description
from gpulease.service.rest.operations import Operation, operations

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
    "agents/batches": agents.AgentBatches,
    "classes": leases.Classes,
    "servers": leases.ServerList,
    "groups": groups.Groups,
    "groups/members": groups.Members,
    "messages": groups.MessageList,
    "messages/{id}": groups.OneMessage,
    "alerts": rest_site.AlertList,
    "incidents": rest_site.IncidentList,
    "audit": rest_site.AuditList,
    "devices": rest_site.DeviceList,
    "me": rest_site.Me,
    "projects": projects.ProjectList,
    "usage": projects.Usage,
    "usage.csv": projects.UsageTable,
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
    "runs": runs.RunList,
    "runs/{id}": runs.OneRun,
    "runs/{id}/events": runs.RunEvents,
    "runs/{id}/reports": runs.RunReports,
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
