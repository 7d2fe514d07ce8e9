"""Logs: one JSON line an event, with ids and without credentials."""

from __future__ import annotations

import io
import json
import logging
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpulease.service import logs
from gpulease.service.logs import JSONLines, redact


def line(message: str, *args: object, **extra: object) -> dict[str, object]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONLines())
    record = logging.LogRecord("gpulease.test", logging.INFO, "", 0, message, args, None)
    record.__dict__.update(extra)
    handler.emit(record)
    (text,) = stream.getvalue().splitlines()
    return json.loads(text)


def test_a_line_carries_ids() -> None:
    found = line("granted %d", 2, lease="ab12", server="lab", user="stu", ref="r1")
    assert found["event"] == "granted 2"
    assert (found["lease"], found["server"], found["user"], found["ref"]) == (
        "ab12",
        "lab",
        "stu",
        "r1",
    )
    assert str(found["at"]).endswith("+00:00")


def test_a_message_with_line_breaks_is_still_one_line() -> None:
    assert line("a\nb\r\nc")["event"] == "a\nb\r\nc"


#: What ``secrets.token_hex(24)`` and ``secrets.token_urlsafe(24)`` may give, and longer ones.
HEX = st.text("0123456789abcdef", min_size=48, max_size=96)
URL_SAFE = st.text(string.ascii_letters + string.digits + "-_", min_size=32, max_size=64).filter(
    lambda text: text.strip("-_")
)


@pytest.mark.parametrize(
    "template",
    [
        "Authorization: token {}",
        "authorization: Bearer {}",
        "GET /x?token={}&y=1",
        "https://user:{}@host/db",
        "state={} code=1",
        "'api_token={}'",
        "plain {} text",
    ],
)
@given(HEX | URL_SAFE)
@example("-" + "xY1" * 14)
def test_what_looks_like_a_credential_is_redacted(template: str, secret: str) -> None:
    assume("plain" not in template or len(secret) >= 43)
    assert secret not in redact(template.format(secret))


def test_a_line_of_dashes_is_no_credential() -> None:
    assert redact(f"a {'-' * 60} b") == f"a {'-' * 60} b"


R = "[redacted]"


WRITTEN = [
    ('{"token": "abcdefgh12", "n": 1}', f'{{"token": {R}, "n": 1}}'),
    (r"said {\"token\": \"a b\", \"n\": 1}", rf"said {{\"token\": {R}, \"n\": 1}}"),
    ("{'password': 'hunt\\'er 2', 'n': 1}", f"{{'password': {R}, 'n': 1}}"),
    ("{'secret': b'x y'}", f"{{'secret': {R}}}"),
    ('"token": "cut off', f'"token": {R}'),
    ("password: x, then", f"password: {R} then"),
    ("DB_PASSWORD = x y", f"DB_PASSWORD = {R} y"),
    ("?access_token=short1&y=1", f"?access_token={R}&y=1"),
    ("?sig=a&code=b&pw=c&y=1", f"?sig={R}&code={R}&pw={R}&y=1"),
    ("api_key=zz", f"api_key={R}"),
    ("X-Api-Key: 01234", f"X-Api-Key: {R}"),
    ("AWS_SECRET_ACCESS_KEY=a/b+c", f"AWS_SECRET_ACCESS_KEY={R}"),
    ("Authorization: Basic dTpw", f"Authorization: Basic {R}"),
    ("('Authorization', 'token abc')", f"('Authorization', 'token {R}')"),
    ("sent Basic dXNlcjpwYXNzd29yZA== there", f"sent Basic {R} there"),
    ("Set-Cookie: a=b; c=d\nnext", f"Set-Cookie: {R}\nnext"),
    ("a ghp_0123456789abcdefghijABCDEFGHIJ012345 b", f"a {R} b"),
    ("a AKIAIOSFODNN7EXAMPLE b", f"a {R} b"),
    ("a eyJhbGciOi.eyJzdWIiOiIx.c2ln b", f"a {R} b"),
    ("redis://:pw@h/0", f"redis://:{R}@h/0"),
    ("postgresql://u:p@ss/w@h/db", f"postgresql://u:{R}@h/db"),
    ("https://key@h/1", f"https://{R}@h/1"),
]


def test_a_credential_is_redacted_however_it_is_written() -> None:
    for text, left in WRITTEN:
        assert redact(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "lease 3b19c010f213a7fe, ref 0a1b2c3d4e, GPU-8f2c1a00-1111-2222-3333-444455556666",
        "GET http://hub:8081/user/ada@example.org/lab?offset=5 -> 200, mail ada@example.org",
        "the token is unknown; no password was given; Basic authentication, basic rules",
        "token_seconds: 3600, tokens: 12, key: a, status: 403, token_env=GPULEASE_LAB2",
        "image reg:5000/x@sha256:0a1b, task-force-for-the-whole-machine",
    ],
)
def test_what_people_search_for_is_left(text: str) -> None:
    assert redact(text) == text


class Said:
    """What a logger with a clock of its own wrote."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self.handler = logs.OncePerMinute(self.stream, clock=lambda: self.now)
        self.handler.setFormatter(logs.JSONLines())
        self.log = logging.Logger("test")
        self.log.addHandler(self.handler)

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_repeated_event_is_said_once_a_minute_with_its_count():
    said = Said()
    for second in range(150):
        said.now = float(second)
        said.log.warning("it took %d ms", second, extra={"lease": "L1"})
    said.handler.close()
    assert [(line["event"], line.get("repeated")) for line in said.lines()] == [
        ("it took 0 ms", None),
        ("it took 59 ms", 59),
        ("it took 119 ms", 60),
        ("it took 149 ms", 30),
    ]


def test_what_repeated_and_stopped_is_said_with_the_next_line_after_its_minute():
    said = Said()
    said.log.error("gone")
    said.log.error("gone")
    said.now = 59.0
    said.log.info("another")
    assert [line["event"] for line in said.lines()] == ["gone", "another"]
    said.now = 61.0
    said.log.info("a third")
    assert [(line["event"], line.get("repeated")) for line in said.lines()[2:]] == [
        ("gone", 1),
        ("a third", None),
    ]


def test_a_line_costs_the_same_however_many_were_said_within_the_minute():
    def looked_at(many: int) -> int:
        said = Said()
        for number in range(many):
            said.log.info("asked", extra={"lease": f"L{number}"})
        counted = said.handler._said = Counted(said.handler._said)
        said.log.info("one more")
        return counted.seen

    assert looked_at(900) == looked_at(9) <= 2


class Counted(dict):
    """Counts the events that somebody goes through."""

    seen = 0

    def items(self):
        for each in super().items():
            self.seen += 1
            yield each


def test_events_about_different_things_are_each_said():
    said = Said()
    for lease in ("L1", "L2"):
        for state in ("queued", "starting", "active"):
            said.log.info("asked -> %s", state, extra={"lease": lease})
        for reason in ("one", "two"):
            said.log.warning("refused", extra={"lease": lease, "reason": reason})
            said.log.error("%s", f"the word {reason} in a sentence", extra={"lease": lease})
    for error in (OSError, ValueError):
        try:
            raise error("broken")
        except error:
            said.log.exception("a round failed")
    assert len(said.lines()) == 16


def test_a_flood_of_different_events_takes_bounded_memory():
    said = Said()
    for n in range(5000):
        said.log.error("of lease", extra={"lease": f"L{n}"})
    assert len(said.lines()) == 5000, "none is lost"
    assert len(said.handler._said) <= 1000
    said.now = 100.0
    said.log.error("of lease", extra={"lease": "L1"})
    assert len(said.handler._said) == 1
