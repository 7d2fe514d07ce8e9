"""Reading what a site wrote as an option of the service: sizes, files, and how a refusal reads."""

from __future__ import annotations

import ssl
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from traitlets.config import Config
from traitlets.config.loader import JSONFileConfigLoader, PyFileConfigLoader

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
    if not Path(given).expanduser().is_file():
        raise bad_option(name, given, "the path of a file that is there")
    return given


def web_address(name: str, given: str) -> str:
    """Return ``given``, the address of a web page that the option ``name`` says, or "" for none.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    where = urlsplit(given)
    if given and (where.scheme not in {"http", "https"} or not where.netloc):
        raise bad_option(name, given, "an address such as https://docs.example.org/gpulease/")
    return given


def smtp_login(user: str, password_file: str) -> tuple[str, str] | None:
    """Return name and password at the mail relay, ``None`` where it asks for none.

    Raises:
        GPULeaseError: ``bad_option``: one of the two is missing, or the file cannot be read.
    """
    if not user and not password_file:
        return None
    if not user or not password_file:
        name = "notify_smtp_user" if not user else "notify_smtp_password_file"
        raise bad_option(name, "", "set where the other one is")
    return user, secret_file("notify_smtp_password_file", password_file)


def secret_file(name: str, given: str) -> str:
    """Return what stands in the file that the option ``name`` says, in one line.

    Raises:
        GPULeaseError: ``bad_option``: it is not there, cannot be read, or is empty.
    """
    path = Path(readable_file(name, given)).expanduser()
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        found = ""
    if not found:
        raise bad_option(name, given, "the path of a file that can be read and holds the secret")
    return found


def listening_at(name: str, given: str, schemes: Sequence[str]) -> tuple[str, str, int]:
    """Return the scheme, host and port of the address that the option ``name`` says.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    where = urlsplit(given)
    try:
        port = where.port or 0
    except ValueError:  # above 65535
        port = -1
    if where.scheme not in schemes or where.hostname is None or port < 0:
        raise bad_option(name, given, f"http://host:port{' or https://...' * (len(schemes) > 1)}")
    return where.scheme, where.hostname, port


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


def read_configuration(name: str, given: str) -> Config:
    """Return what the configuration file ``given`` says, for the option ``name``.

    Raises:
        GPULeaseError: ``bad_option``: it is not there, or it fails.
    """
    path = Path(readable_file(name, given)).expanduser()
    kind = JSONFileConfigLoader if path.suffix == ".json" else PyFileConfigLoader
    try:
        return Config(kind(path.name, str(path.parent.resolve())).load_config())
    except Exception as error:  # the file is a program of the site's
        raise failing_file(name, given, error) from error


def failing_file(name: str, given: str, error: Exception) -> GPULeaseError:
    """Return the refusal of a configuration file that cannot be executed: its line and why."""
    line = error.lineno if isinstance(error, SyntaxError) else _line_in(given, error)
    place = f"line {line} of {given}" if line else given
    return GPULeaseError(
        "bad_option",
        f"{name}: {place} fails with {type(error).__name__}: {error}.",
        next_step="Mend the file.",
        numbers={"option": name},
    )


def _line_in(file: str, error: Exception) -> int | None:
    """Return the innermost line of ``file`` that the error passed, ``None`` for none."""
    frames = traceback.extract_tb(error.__traceback__)
    name = Path(file).name
    return next(
        (each.lineno for each in reversed(frames) if Path(each.filename).name == name), None
    )


def bad_option(name: str, given: str, wanted: str) -> GPULeaseError:
    """Return the refusal of an option's value: which, what it is, and what it should be."""
    return GPULeaseError(
        "bad_option",
        f"{name} is {given!r}.",
        next_step=f"Give {wanted}.",
        numbers={"option": name.rpartition(".")[2]},
    )
