"""A service with an ``https`` address, and whom those who call it trust."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from gpulease.client import ServiceClient
from gpulease.errors import GPULeaseError
from gpulease.protocol.names import ENV_SERVICE_CA
from gpulease.protocol.service_tls import trusted
from gpulease.service.settings.application import GPULeaseService
from gpulease.service.settings.reading import listening_tls
from tests.service import kit

Pairs = dict[str, dict[str, str]]


def shown(pair: dict[str, str]) -> dict[str, str]:
    return {"JUPYTERHUB_SSL_CERTFILE": pair["cert"], "JUPYTERHUB_SSL_KEYFILE": pair["key"]}


def text_of(path: str) -> str:
    return Path(path).read_text(encoding="ascii")


async def test_calls_and_events_reach_it_with_its_authority_alone(
    authorities: Pairs,
    hub: kit.Hub,
    run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = (authorities[name]["authority"] for name in ("service", "other"))
    own_text, other_text = text_of(own), text_of(other)
    async with run(tls=listening_tls(shown(authorities["service"]))) as site:
        url = site.url.replace("http:", "https:")

        async def ask() -> None:
            client = ServiceClient(url, hub.token("stu"))
            assert await client.classes()
            address = f"wss{url.removeprefix('https')}api/events"
            tls = trusted(url, os.environ)
            request = HTTPRequest(address, headers=client.headers, ssl_options=tls)
            events = await websocket_connect(request)
            assert await events.read_message()
            events.close()

        def refused() -> Any:
            return pytest.raises(GPULeaseError, match=r"not answer|not reach")

        with refused():
            await ask()
        monkeypatch.setenv(ENV_SERVICE_CA, other_text)
        with refused():
            await ask()
        monkeypatch.setenv(ENV_SERVICE_CA, own_text)
        await ask()
        # In a server of a hub with `internal_ssl`, and with both.
        monkeypatch.setenv("JUPYTERHUB_SSL_CLIENT_CA", other)
        await ask()
        monkeypatch.delenv(ENV_SERVICE_CA)
        monkeypatch.setenv("JUPYTERHUB_SSL_CLIENT_CA", own)
        await ask()


def test_without_tls_nothing_is_read() -> None:
    assert trusted("http://gpulease:9980/", {ENV_SERVICE_CA: "no certificate"}) is None


@pytest.mark.parametrize("name", [ENV_SERVICE_CA, "JUPYTERHUB_SSL_CLIENT_CA"])
@pytest.mark.parametrize("value", ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_variable_that_holds_no_certificate_is_named(name: str, value: str) -> None:
    with pytest.raises(GPULeaseError, match=name) as refused:
        trusted("wss://gpulease:9980/", {name: value})
    assert refused.value.reason == "bad_settings"


def test_an_encrypted_address_needs_a_certificate(
    monkeypatch: pytest.MonkeyPatch, authorities: Pairs
) -> None:
    service = GPULeaseService(service_url="https://0.0.0.0:9980")
    for name in shown(authorities["service"]):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GPULeaseError, match="JUPYTERHUB_SSL_CERTFILE") as refused:
        service.options()
    assert refused.value.reason == "bad_option"
    for name, value in shown(authorities["service"]).items():
        monkeypatch.setenv(name, value)
    assert service.options().tls is not None
