"""What answers at each hub's path: an application of its own, with that hub's log-in and names.

Owns who proves whose tokens.  An address under a hub's path is answered by that hub's application
alone, which knows no other hub's log-in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace

from tornado.routing import AnyMatches, PathMatches, Router, Rule, RuleRouter

from gpulease.hub_names import HubNames
from gpulease.service.context import Services
from gpulease.service.hubs.auth import ServiceOAuth
from gpulease.service.pages import Site
from gpulease.service.routes import application
from gpulease.service.settings.further_hubs import FurtherHub
from gpulease.service.settings.options import Options


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
