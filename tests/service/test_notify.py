"""People are told by mail and webhook: real servers receive, one that is away is tried again."""

import base64
import email
import email.policy
import json
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import parsedate_to_datetime

import pytest
import yaml
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from gpulease.errors import GPULeaseError
from gpulease.gpus.simulated import SimulatedProbe
from gpulease.service.notices import Mail, Notice, Notifier, Webhook, channels
from gpulease.service.run import RunningService
from gpulease.service.settings.reading import smtp_login
from tests.helpers import tcp_server, wait_for_async
from tests.service.kit import Site, options
from tests.service.test_reservations import POLICY, WEEK2, book, prof, reserve_soon

NOTICE = Notice(
    "short", "cs101", "lab", "lab has 2 of 3 GPUs.", "Split it.", ("a@x.org", "b@x.org")
)
WHY = "You stand in `contact` of this reservation; its instructor can change that."


@dataclass
class Received:
    """One e-mail as it came over the wire: the envelope, and what it says."""

    sender: str
    to: list[str]
    message: EmailMessage

    @property
    def text(self):
        return self.message.get_content().replace("\r\n", "\n")


@asynccontextmanager
async def relay(received, refusing=()):
    """An SMTP server that speaks RFC 5321 line by line; ``refusing``: (address, code)s in turn."""
    left = list(refusing)

    def answer(words, envelope):
        address = words.partition(":")[2].strip().partition(">")[0].lstrip("<")
        if words.upper().startswith("MAIL FROM:"):
            envelope[:] = [address, []]
        elif words.upper().startswith("RCPT TO:"):
            for each in left:
                if each[0] == address:
                    left.remove(each)
                    return f"{each[1]} {address} is not taken"
            envelope[1].append(address)
        return "250 fine"

    async def serve(reader, writer):
        envelope = []
        writer.write(b"220 hello\r\n")
        while line := (await reader.readline()).decode().strip():
            word = line.split(maxsplit=1)[0].upper()
            if word == "EHLO":
                writer.write(b"250-relay\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n")
                continue
            if word == "DATA":
                writer.write(b"354 go on\r\n")
                data = (await reader.readuntil(b"\r\n.\r\n"))[:-3].replace(b"\r\n..", b"\r\n.")
                message = email.message_from_bytes(data, policy=email.policy.default)
                received.append(Received(envelope[0], envelope[1], message))
            if word == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            writer.write(f"{answer(line, envelope)}\r\n".encode())

    async with tcp_server(serve) as port:
        yield f"smtp://127.0.0.1:{port}"


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


async def test_each_address_gets_a_mail_of_its_own():
    received = []
    async with relay(received) as url:
        notifier = Notifier([Mail(url, "GPUs <gpulease@x.org>")])
        notifier.tell(NOTICE)
        await wait_for_async(lambda: len(received) == 2, 30, "both")
        await notifier.close()
    received.sort(key=lambda each: each.to)
    assert [(each.sender, each.to) for each in received] == [
        ("gpulease@x.org", ["a@x.org"]), ("gpulease@x.org", ["b@x.org"]),
    ]  # fmt: skip
    mail = received[0].message
    assert (mail["From"], mail["To"]) == ("GPUs <gpulease@x.org>", "a@x.org")
    assert mail["Subject"] == "[gpulease] lab of cs101: fewer GPUs than reserved, or than people"
    assert received[0].text == f"lab has 2 of 3 GPUs.\nSplit it.\n\n{WHY}\n"
    # Relays ask for both (RFC 5322), and no out-of-office reply should come back.
    assert abs(parsedate_to_datetime(mail["Date"]) - datetime.now(UTC)) < timedelta(minutes=5)
    assert len({each.message["Message-ID"] for each in received}) == 2
    assert mail["Message-ID"].endswith("@x.org>")
    assert mail["Auto-Submitted"] == "auto-generated"


async def test_a_mail_says_where_its_reader_finds_more_and_why_it_came():
    received = []
    async with relay(received) as url:
        [mail] = channels(url, "gpulease@x.org", "", page="https://hub.x.org/services/gpulease/")
        await mail.send(replace(NOTICE, kind="budget"))
    assert received[0].text.splitlines()[-2:] == [
        "https://hub.x.org/services/gpulease/",
        "You stand in `contact` of this budget; an admin of the hub can change that.",
    ]


async def test_a_name_that_no_header_can_hold_is_told_all_the_same():
    for name in ["lab\u2028two", "lab\x0btwo", "lab\x85two", "lab\ntwo"]:
        received = []
        async with relay(received) as url:
            await Mail(url, "gpulease@x.org").send(replace(NOTICE, name=name, group="Übung"))
        assert received[0].message["Subject"] == (
            "[gpulease] lab two of Übung: fewer GPUs than reserved, or than people"
        )


async def test_mail_goes_to_the_address_as_it_was_written():
    for address in ["o'hara+gpu@x.org", '"a"b@x.org', "jörg@x.org", "a..b@x.org"]:
        received = []
        async with relay(received) as url:
            await Mail(url, "gpulease@x.org").send(replace(NOTICE, to=(address,)))
        assert received[0].to == [address]


async def test_one_address_that_is_refused_takes_the_mail_from_nobody(caplog):
    received, sent = [], []
    refusing = [("a@x.org", 550), ("b@x.org", 450), ("b@x.org", 451)]

    class Followed(Mail):
        """Whoever has received a mail may not have told the sender yet."""

        async def send(self, notice):
            await super().send(notice)
            sent.append(notice)

    async with relay(received, refusing) as url:
        notifier = Notifier([Followed(url, "gpulease@x.org")], retry=0.01)
        notifier.tell(replace(NOTICE, to=("a@x.org", "b@x.org", "c@x.org", "c@x.org")))
        await wait_for_async(lambda: len(sent) == 2, 30, "those who are not refused")
        await wait_for_async(lambda: "is not sent by Followed" in caplog.text, 30, "the refusal")
        await notifier.close()
    # For now is tried again, for good is not, and is said.
    assert sorted(each.to for each in received) == [["b@x.org"], ["c@x.org"]]
    assert caplog.text.count("a notice is not sent by Followed: lab has 2 of 3 GPUs.") == 1
    assert "(550)" in caplog.text
    assert "x.org" not in caplog.text, "the log needs no addresses"


async def test_what_is_still_to_be_sent_is_sent_by_the_next_service_and_once(hub, tmp_path, caplog):
    posted = []
    async with hook(posted, [503]) as url:
        changed = options(tmp_path, webhook=url)
        service = RunningService(changed)
        await service.open()
        service._notifier.tell(NOTICE)
        await wait_for_async(lambda: "could not be sent" in caplog.text, 30, "a first try")
        await service.close()
        assert not posted
        for _ in range(2):  # the second one finds that the first one has sent it
            service = RunningService(changed)
            await service.open()
            await wait_for_async(lambda s=service: not s._notifier._pending, 30, "all is sent")
            ledger = service.services.ledger  # as one finds it that comes after a kill -9
            assert await ledger.call(ledger.store.noted, "notices") == ""
            await service.close()
    assert [each["sentence"] for each in posted] == ["lab has 2 of 3 GPUs."]


async def test_what_is_left_for_a_way_that_is_not_set_up_any_more_is_said(caplog):
    async with relay([], [("a@x.org", 450)]) as url:
        before = Notifier([Mail(url, "gpulease@x.org")], retry=600)
        before.tell(replace(NOTICE, to=("a@x.org",)))
        left = await before.close()
    after = Notifier([])
    after.tell_left(left)
    await after.close()
    assert "a notice is not sent by Mail: lab has 2 of 3 GPUs." in caplog.text


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

    async with tcp_server(serve) as port:
        yield f"smtp://localhost:{port}"


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
            assert any("2 of 3 x gpu" in each["sentence"] for each in service.services.alerts())
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
    assert "no session on" in posted[0]["sentence"]
