"""The demo's proxy with the options by which a hub with `internal_ssl` passes its certificates.

TLS is checked at both ends: the hub that sets routes must show a certificate, and so does the proxy
to hub and servers, whose names it checks.  The Python ``configurable-http-proxy`` knows these
options and refuses them.
"""

import argparse
import ssl
import sys

import configurable_http_proxy.cli as proxy_cli
import configurable_http_proxy.configproxy as proxy_app
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.web import Application

from gpulease.demo.proxy import MAX_CLIENTS, MAX_MESSAGE, Handler


def main() -> None:
    """Run the proxy; the options of `internal_ssl` are taken here, the rest further on."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for end in ("api", "client"):
        for what in ("key", "cert", "ca"):
            parser.add_argument(f"--{end}-ssl-{what}", required=True)
        parser.add_argument(f"--{end}-ssl-request-cert", action="store_true", required=True)
        parser.add_argument(f"--{end}-ssl-reject-unauthorized", action="store_true", required=True)
    given, rest = parser.parse_known_args()
    to_us = _context(
        ssl.Purpose.CLIENT_AUTH, given.api_ssl_key, given.api_ssl_cert, given.api_ssl_ca
    )
    onward = _context(
        ssl.Purpose.SERVER_AUTH, given.client_ssl_key, given.client_ssl_cert, given.client_ssl_ca
    )

    class TLSHandler(Handler):
        """Shows the proxy's certificate to whoever is behind."""

        def _get_proxy_request(self, url: str) -> HTTPRequest:
            request: HTTPRequest = super()._get_proxy_request(url)
            request.ssl_options = onward
            return request

    class Proxy(proxy_app.PythonProxy):  # type: ignore[misc]  # it has no types
        """Takes routes from those who show a certificate."""

        def __init__(self, options: dict[str, object]) -> None:
            super().__init__(options)
            self.api_app.settings["tls"] = to_us

    def server(app: Application) -> HTTPServer:
        """Make a listening end; browsers come without TLS, as behind an ingress."""
        return HTTPServer(app, ssl_options=app.settings.get("tls"))

    proxy_cli.PythonProxy = Proxy
    proxy_app.ProxyHandler = TLSHandler
    proxy_cli.HTTPServer = server
    # The hub's page about an error is fetched without a request of ours.
    AsyncHTTPClient.configure(
        None,
        max_clients=MAX_CLIENTS,
        max_body_size=MAX_MESSAGE,
        defaults={"ssl_options": onward},
    )
    sys.argv[1:] = rest
    proxy_cli.main()


def _context(purpose: ssl.Purpose, key: str, certificate: str, trusted: str) -> ssl.SSLContext:
    """Both ends show a certificate; a server's must bear the name by which it was called."""
    context = ssl.create_default_context(purpose, cafile=trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    return context


if __name__ == "__main__":
    main()
