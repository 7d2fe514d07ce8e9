"""Admits only the home kernel, known by its key, to a companion's Jupyter channels.

Each context that has such channels asks here about a client (ZAP).  jupyter_client has the kernel's
own key pair serve its clients too, so without this anyone who knows the public half is let in:
https://github.com/jupyter/jupyter_client/pull/1109.
"""

from __future__ import annotations

from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

_DOMAIN = "gpulease"


class HomeOnly:
    """Lets one client key in.

    Args:
        client_key: the home kernel's public key (Z85).
    """

    def __init__(self, client_key: str) -> None:
        self._client_key = client_key.encode()
        self._authenticators: list[ThreadAuthenticator] = []
        self._guarded: list[zmq.Context[Any]] = []

    def guard(self, context: zmq.Context[Any]) -> None:
        """Ask here about each client of ``context``; call it before a socket of it is bound."""
        if context in self._guarded:
            return
        self._guarded.append(context)
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.configure_curve_callback(_DOMAIN, credentials_provider=self)
        self._authenticators.append(authenticator)

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002
        """Answer an authenticator: is this the home kernel's key?"""
        return key == self._client_key

    def stop(self) -> None:
        """Let nobody in any more; without this the contexts could not end."""
        for authenticator in self._authenticators:
            authenticator.stop()
        self._authenticators.clear()


def close_to_strangers(socket: zmq.Socket[Any] | zmq.Context[Any]) -> None:
    """Refuse every client of ``socket``, or of a context's sockets, while nobody answers for it."""
    socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN.encode())
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
