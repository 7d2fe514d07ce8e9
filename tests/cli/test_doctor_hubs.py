"""`gpulease doctor` of a service on one machine: each further hub, and each fault by its name."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from gpulease.commands.doctor import look
from gpulease.hub.scopes import SERVICE_SCOPES

TOKEN = "the-token-of-the-lab"


class Lab(BaseHTTPRequestHandler):
    """What a hub answers to the question who one is."""

    model: ClassVar[dict[str, Any]] = {}
    late = 0.0

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == f"token {TOKEN}" and self.path == "/hub/api/user"
        self.send_response_only(200 if known else 403)
        self.send_header("Date", self.date_time_string(time.time() - self.late))
        self.end_headers()
        self.wfile.write(json.dumps(self.model).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def lab() -> Iterator[str]:
    """The address of its API."""
    server = HTTPServer(("127.0.0.1", 0), Lab)
    Thread(target=server.serve_forever, daemon=True).start()
    Lab.model = {"kind": "service", "name": "gpulease-lab2", "scopes": [*SERVICE_SCOPES, "more"]}
    Lab.late = 0.0
    try:
        yield f"http://127.0.0.1:{server.server_port}/hub/api"
    finally:
        server.shutdown()
        server.server_close()


async def said(directory: Path, api: str, token: str = TOKEN, **more: object) -> Any:
    """Return what is said of the hub, and of its pages where the hub can be read."""
    file = directory / "config.py"
    hubs = {"lab2": {"api_url": api, "token_env": "LAB_TOKEN", **more}}
    file.write_text(f"c.GPULeaseService.hubs = {hubs!r}\n")
    found = await look(str(file), {"LAB_TOKEN": token})
    assert token not in str(found) or not token
    by_check = {each.check: each for each in found}
    assert by_check.keys() >= {"hub", "pages"}
    return by_check.get("hubs") or by_check["hub lab2"], by_check.get("pages lab2")


async def test_a_hub_that_knows_the_service_is_well(tmp_path: Path, lab: str) -> None:
    found, _ = await said(tmp_path, lab)
    assert (found.check, found.state) == ("hub lab2", "ok")


async def test_a_hub_that_is_away_or_knows_another_token_is_named(tmp_path: Path, lab: str) -> None:
    other, _ = await said(tmp_path, lab, "an-older-one")
    assert (other.check, other.state) == ("hub lab2", "wrong")
    assert "403" in other.sentence
    away, _ = await said(tmp_path, "http://127.0.0.1:1/hub/api")
    assert (away.state, "http://127.0.0.1:1/hub/api" in away.sentence) == ("wrong", True)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": "gpulease"}, "service gpulease there, and its path is /services/gpulease-lab2/"),
        ({"kind": "user"}, "user gpulease-lab2"),
        ({"scopes": [x for x in SERVICE_SCOPES if x != "read:servers"]}, "not read:servers there"),
    ],
    ids=str,
)
async def test_a_token_that_is_not_the_services_or_may_too_little_is_named(
    tmp_path: Path, lab: str, wrong: dict[str, Any], named: str
) -> None:
    Lab.model |= wrong
    found, _ = await said(tmp_path, lab)
    assert (found.state, named in found.sentence) == ("wrong", True), found
    assert found.next_step


async def test_a_clock_that_differs_is_named(tmp_path: Path, lab: str) -> None:
    Lab.late = 90.0
    found, _ = await said(tmp_path, lab)
    assert (found.state, "seconds apart" in found.sentence) == ("wrong", True), found


async def test_what_cannot_be_read_of_the_hubs_is_said(tmp_path: Path, lab: str) -> None:
    found, _ = await said(tmp_path, lab, "")
    assert (found.check, found.state) == ("hubs", "wrong")
    assert "token_env is 'LAB_TOKEN'" in found.sentence


async def test_what_a_further_hub_cannot_have_is_said(tmp_path: Path, lab: str) -> None:
    """Neither a domain for each person's servers nor TLS that the hub's own authority vouches."""
    _, shared = await said(tmp_path, lab)
    assert (shared.state, "share the hub's domain" in shared.sentence) == ("warning", True)
    assert "subdomain_host" in shared.next_step
    _, trusted = await said(tmp_path, lab, trusted_servers=True)
    assert (trusted.state, trusted.next_step) == ("ok", "")
    encrypted, _ = await said(tmp_path, lab.replace("http:", "https:"))
    assert (encrypted.state, "internal_ssl" in encrypted.next_step) == ("wrong", True)
