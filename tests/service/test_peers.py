"""Whose connection it is, by the word of this machine's kernel."""

from __future__ import annotations

import os
import socket

import pytest

from gpulease.service.rest.sockets import account_of_peer
from tests.helpers import is_root

NOBODY = 65534


@pytest.mark.parametrize(
    ("family", "listen", "call"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_the_account_of_a_connection_is_the_kernels_word(family, listen, call):
    both = listen == "::"
    with socket.create_server((listen, 0), family=family, dualstack_ipv6=both) as server:
        port = server.getsockname()[1]
        with socket.create_connection((call, port)):
            ours, _ = server.accept()
            with ours:
                assert account_of_peer(ours, {}) == os.geteuid()


def test_the_account_is_the_other_ends_not_ours():
    if not is_root():
        pytest.skip("not root: no socket of another account can be made")
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.seteuid(NOBODY)
        try:
            caller = socket.create_connection(server.getsockname())
        finally:
            os.seteuid(0)
        ours, _ = server.accept()
        with caller, ours:
            assert account_of_peer(ours, {}) == NOBODY
            assert account_of_peer(caller, {}) == 0


def test_what_came_through_a_proxy_says_nothing_of_who_sent_it():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        ours, _ = server.accept()
        with ours:
            assert account_of_peer(ours, {"X-Forwarded-For": "10.0.0.1"}) is None


def test_a_connection_that_is_closed_is_nobodys():
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
        caller.close()
        ours.close()
        assert account_of_peer(ours, {}) is None
