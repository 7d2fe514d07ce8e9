"""Reading what a site wrote as an option of the service: sizes, files, and how a refusal reads."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from gpulease.errors import GPULeaseError
from gpulease.policy.units import parse_size


def size_option(name: str, given: str) -> int:
    """Return the bytes that the option ``name`` says.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    try:
        return parse_size(given)
    except ValueError:
        raise bad_option(name, given, "a size such as 2GiB") from None


def readable_file(name: str, given: str) -> str:
    """Return ``given``, the file that the option ``name`` says.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    if not Path(given).is_file():
        raise bad_option(name, given, "the path of a file that is there")
    return given


def listening_tls(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return what a service with an ``https`` address shows: the pair that the hub knows it by.

    Of those who connect no certificate is asked: lease pods have none, and tokens say who calls.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    certificate, key = (
        environ.get(f"JUPYTERHUB_SSL_{name}", "") for name in ("CERTFILE", "KEYFILE")
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError:  # ssl.SSLError is one
        raise bad_option(
            "JUPYTERHUB_SSL_CERTFILE", certificate, "a certificate and its key for an https address"
        ) from None
    return context


def bad_option(name: str, given: str, wanted: str) -> GPULeaseError:
    """Return the refusal of an option's value: which, what it is, and what it should be."""
    return GPULeaseError(
        "bad_option",
        f"{name} is {given!r}.",
        next_step=f"Give {wanted}.",
        numbers={"option": name.rpartition(".")[2]},
    )
