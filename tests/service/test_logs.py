"""Logs: one JSON line an event, with ids and without credentials."""

from __future__ import annotations

import io
import json
import logging
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
@given(st.sampled_from(["hex", "url"]), st.integers(24, 48))
def test_what_looks_like_a_credential_is_redacted(template: str, kind: str, size: int) -> None:
    make = secrets.token_hex if kind == "hex" else secrets.token_urlsafe
    secret = make(size)
    if "plain" in template and kind == "url" and len(secret) < 43:
        return
    assert secret not in redact(template.format(secret))


def test_ids_people_search_for_are_left() -> None:
    text = "lease 3b19c010f213a7fe, ref 0a1b2c3d4e, GPU-8f2c1a00-1111-2222-3333-444455556666"
    assert redact(text) == text
