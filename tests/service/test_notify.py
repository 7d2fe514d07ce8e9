"""People are told by mail and webhook: real servers receive, one that is away is tried again."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager

import pytest
import yaml
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from gpulease.errors import GPULeaseError
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.service.notify import Mail, Notice, Notifier, Webhook, channels
from gpulease.service.option_values import smtp_login
from gpulease.service.run import RunningService
from tests.helpers import wait_for_async
from tests.service.kit import Site, options
from tests.service.test_reservations import POLICY, WEEK2, book, prof, reserve_soon

NOTICE = Notice(
    "short", "cs101", "lab", "lab has 2 of 3 GPUs.", "Split it.", ("a@x.org", "b@x.org")
)


@asynccontextmanager
async def relay(messages):
    """An SMTP server that takes every message."""

    async def serve(reader, writer):
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            word = line.split(maxsplit=1)[0].upper()
            if word == b"DATA":
                writer.write(b"354 go on\r\n")
                messages.append((await reader.readuntil(b"\r\n.\r\n")).decode())
            if word == b"QUIT":
                writer.write(b"221 bye\r\n")
                break
            writer.write(b"250 fine\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def hook(posted, statuses=()):
    """A web server that answers these statuses first, and 204 then."""
    left = list(statuses)

    class Handler(RequestHandler):
        def post(self):
            status = left.pop(0) if left else 204
            if status == 204:
                posted.append(json.loads(self.request.body))
            self.set_status(status)

    server = HTTPServer(Application([(r"/hook", Handler)]))
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}/hook"
    finally:
        server.stop()
        await server.close_all_connections()


async def test_mail_goes_to_everybody_who_is_to_be_told():
    messages = []
    async with relay(messages) as url:
        await Mail(url, "gpulease@x.org").send(NOTICE)
    (message,) = messages
    assert "To: a@x.org, b@x.org" in message
    assert "From: gpulease@x.org" in message
    assert "lab has 2 of 3 GPUs." in message


async def test_a_webhook_that_fails_is_tried_again_and_told_once():
    posted = []
    async with hook(posted, [500, 503]) as url:
        notifier = Notifier([Webhook(url)], retry=0.01)
        notifier.tell(NOTICE)
        await wait_for_async(lambda: bool(posted), 30, "the notice")
        await notifier.close()
    assert [(each["kind"], each["to"]) for each in posted] == [("short", ["a@x.org", "b@x.org"])]


@asynccontextmanager
async def guarded_relay(said, certificate):
    """An SMTP server that takes a login, and only after STARTTLS."""

    async def serve(reader, writer):
        encrypted = False
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            word = line.split(maxsplit=1)[0].upper()
            said.append((encrypted, line.decode().strip()))
            if word == b"EHLO":
                offered = b"AUTH PLAIN" if encrypted else b"STARTTLS"
                writer.write(b"250-relay\r\n250 " + offered + b"\r\n")
            elif word == b"STARTTLS":
                writer.write(b"220 go on\r\n")
                await writer.start_tls(certificate)
                encrypted = True
            elif word == b"AUTH":
                writer.write(b"235 welcome\r\n")
            elif word == b"DATA":
                writer.write(b"354 go on\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(b"250 fine\r\n")
            elif word == b"QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 fine\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"smtp://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_login_is_sent_encrypted_only(tmp_path):
    from certipy import Certipy

    pki, said = Certipy(store_dir=str(tmp_path)), []
    authority = pki.create_ca("relay-ca")["files"]["cert"]
    pair = pki.create_signed_pair("relay", "relay-ca", alt_names=["DNS:localhost"])["files"]
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.load_cert_chain(pair["cert"], pair["key"])
    trusting = ssl.create_default_context(cafile=authority)
    async with guarded_relay(said, certificate) as url:
        await Mail(url, "gpulease@x.org", ("ann", "secret"), trusting).send(NOTICE)
    (login,) = [each for each in said if each[1].startswith("AUTH")]
    assert login == (True, "AUTH PLAIN " + base64.b64encode(b"\0ann\0secret").decode())
    assert (True, "data") in [(encrypted, line.lower()) for encrypted, line in said]


def test_half_a_login_is_refused(tmp_path):
    password = tmp_path / "password"
    password.write_text("secret\n")
    assert smtp_login("ann", str(password)) == ("ann", "secret")
    assert smtp_login("", "") is None
    for user, file in (("ann", ""), ("", str(password)), ("ann", str(tmp_path / "none"))):
        with pytest.raises(GPULeaseError) as caught:
            smtp_login(user, file)
        assert caught.value.reason == "bad_option"


@pytest.mark.parametrize("url", ["mail.x.org", "http://x", "smtp://", "smtp://x:99999"])
def test_an_address_that_cannot_be_used_is_refused_at_the_start(url):
    with pytest.raises(GPULeaseError) as caught:
        channels(url, "a@b", "")
    assert caught.value.reason == "bad_option"


class Breaking(SimulatedProbe):
    """A probe whose last device is gone from some moment on."""

    broken = False

    def inventory(self):
        found = super().inventory()
        return found[:-1] if self.broken else found


async def test_lost_gpus_shorten_a_lab_and_its_instructor_and_admin_are_told_once(hub, tmp_path):
    first, posted = tmp_path / "policy.yaml", []
    first.write_text(POLICY)
    async with hook(posted) as url:
        probe = Breaking(3)
        changed = options(tmp_path, first_policy_file=first, webhook=url)
        service = RunningService(changed, probe)
        await service.open()
        try:
            site = Site(hub, service)
            made = await reserve_soon(site, 3600, contact=["prof@x.org"])
            probe.broken = True
            await service.services.provider.inventory()
            watch = service.services.reservation_watch
            await wait_for_async(lambda: bool(watch.short()), 30, "fewer seats")
            await watch.look()
            await watch.look()
            await wait_for_async(lambda: bool(posted), 30, "the notice")
            seen = await prof(site).call("GET", f"reservations/{made['id']}")
            (window,) = seen["windows"]
            assert (window["reserved"], window["seats"]) == (3, 2)
            assert any("2 of 3 x gpu" in each for each in service.services.health()["alerts"])
            await prof(site).call("DELETE", f"reservations/{made['id']}", {"note": "ill"})
            await wait_for_async(lambda: len(posted) > 1, 30, "the second notice")
        finally:
            await service.close()
    assert [each["kind"] for each in posted] == ["short", "cancelled"]
    assert posted[1]["sentence"].endswith("cancelled the reservation lab of cs101: ill.")


async def test_a_closure_that_comes_later_is_told_and_a_closed_day_is_refused(hub, tmp_path):
    first, posted = tmp_path / "policy.yaml", []
    first.write_text(POLICY)
    async with hook(posted) as url:
        changed = options(tmp_path, first_policy_file=first, webhook=url)
        service = RunningService(changed, SimulatedProbe(3))
        await service.open()
        try:
            site = Site(hub, service)
            made = await book(prof(site), repeat="FREQ=WEEKLY;COUNT=3", contact=["prof@x.org"])
            shut = {"from": WEEK2, "to": WEEK2, "title": "Strike"}
            text = yaml.safe_load(POLICY)
            text["reservations"]["closures"] = {"strike": shut}
            admin = site.client(hub.admin_token())
            await admin.call("PUT", "policy", {"text": yaml.safe_dump(text)})
            assert (await prof(site).call("GET", "closures"))["items"] == [
                {"first": WEEK2, "last": WEEK2, "title": "Strike"}
            ]
            await service.services.reservation_watch.expand_again()
            await wait_for_async(lambda: bool(posted), 30, "the notice")
            seen = await prof(site).call("GET", f"reservations/{made['id']}")
            assert (seen["windows_ahead"], seen["version"]) == (2, 2)
            assert seen["skipped"] == [{"start": f"{WEEK2}T14:00", "why": "Strike"}]
            on_strike = {"start": f"{WEEK2}T14:00", "name": "other"}
            with pytest.raises(GPULeaseError, match=r"Nothing is open on .*: Strike"):
                await book(prof(site), **on_strike)
        finally:
            await service.close()
    assert [each["kind"] for each in posted] == ["changed"]
    assert "no window on" in posted[0]["sentence"]
