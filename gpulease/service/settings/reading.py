"""Reading what a site wrote as an option of the service: sizes, files, addresses, further hubs.

Which of several hubs proves a token follows from the address alone: each hub's people come by a
path of its own (``prefix``), so that no hub is shown the token of another.
"""

from __future__ import annotations

import ssl
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from traitlets.config import Config
from traitlets.config.loader import JSONFileConfigLoader, PyFileConfigLoader

from gpulease.errors import GPULeaseError
from gpulease.protocol.hub_names import SERVICE, is_hub_name
from gpulease.providers.kubernetes.api.client import may_meet
from gpulease.sizes import parse_size


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
        next_step="Correct the file.",
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


HUBS_OPTION: Final = "GPULeaseService.hubs"
_KEYS: Final = (
    "api_url", "token_env", "token_file", "prefix", "namespaces", "trusted_servers",
)  # fmt: skip


@dataclass(frozen=True)
class FurtherHub:
    """One further hub.

    Attributes:
        name: by which it is known here (``hub_names``).
        api_url: its API, as the service reaches it: ``http://HOST:8081/hub/api``.
        token: the service's at this hub.
        prefix: the path of the service behind its proxy, with a slash at both ends.
        namespaces: where its people's servers run on Kubernetes, by name or pattern.
        trusted_servers: its site trusts the pages that its people's servers show.
    """

    name: str
    api_url: str
    token: str = field(repr=False)
    prefix: str
    namespaces: tuple[str, ...] = ()
    trusted_servers: bool = False

    @property
    def service_name(self) -> str:
        """What the service is called at this hub."""
        return self.prefix.rstrip("/").rpartition("/")[2]

    @property
    def base(self) -> str:
        """The path of the hub's site, with a slash at both ends."""
        return self.prefix.removesuffix(f"services/{self.service_name}/")


def read_hubs(
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    first_prefix: str,
    first_namespaces: Sequence[str] | None = None,
) -> tuple[FurtherHub, ...]:
    """Return the further hubs, in the order of the configuration.

    Args:
        given: the option, by name.
        environ: where ``token_env`` is looked up.
        first_prefix: the service's path at the first hub.
        first_namespaces: where the first hub's servers run; ``None`` where leases are no pods.

    Raises:
        GPULeaseError: ``bad_option``; what it says holds no token.
    """
    found = tuple(_hub(str(name), members, environ) for name, members in given.items())
    taken = [f"/{first_prefix.strip('/')}/"]
    for hub in found:
        if any(hub.prefix.startswith(each) or each.startswith(hub.prefix) for each in taken):
            raise bad_option(
                f"{_where(hub.name)}.prefix",
                hub.prefix,
                "a path that no other hub has: it says which hub proves a token."
                " Call the service otherwise there (service_name in setup_gpulease)",
            )
        taken.append(hub.prefix)
    _check_namespaces(found, first_namespaces)
    return found


def _check_namespaces(hubs: Sequence[FurtherHub], first: Sequence[str] | None) -> None:
    """Refuse what does not say of every namespace whose servers run there."""
    taken = list(first or ())
    for hub in hubs:
        where, said = f"{_where(hub.name)}.namespaces", ", ".join(hub.namespaces)
        if bool(hub.namespaces) != (first is not None):
            wanted = "the namespaces in which its people's servers run" if first else "none"
            raise bad_option(where, said, f"{wanted}: they are for leases on Kubernetes alone")
        if any(may_meet(mine, other) for mine in hub.namespaces for other in taken):
            raise bad_option(where, said, "namespaces in which no other hub's servers run")
        taken += hub.namespaces


def _where(hub: str) -> str:
    return f"{HUBS_OPTION}[{hub!r}]"


def _hub(name: str, members: Any, environ: Mapping[str, str]) -> FurtherHub:
    where = _where(name)
    if not is_hub_name(name):
        raise bad_option(
            HUBS_OPTION, name,
            "a name of at most 32 small letters, digits and hyphens that begins with a letter, and"
            f" is not {SERVICE!r}",
        )  # fmt: skip
    if not isinstance(members, Mapping):
        raise bad_option(where, type(members).__name__, f"a dictionary of {', '.join(_KEYS)}")
    unknown = sorted({str(key) for key in members} - set(_KEYS))
    if unknown:
        raise bad_option(where, ", ".join(unknown), f"some of {', '.join(_KEYS)}")
    url = str(members.get("api_url", ""))
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise bad_option(
            f"{where}.api_url", url, "the address of its API, such as http://lab2:8081/hub/api"
        )
    return FurtherHub(
        name=name,
        api_url=url.rstrip("/"),
        token=_token(where, members, environ),
        prefix=_prefix(
            f"{where}.prefix", str(members.get("prefix", f"/services/gpulease-{name}/"))
        ),
        namespaces=_namespaces(f"{where}.namespaces", members.get("namespaces", ())),
        trusted_servers=_flag(f"{where}.trusted_servers", members.get("trusted_servers", False)),
    )


def _token(where: str, members: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the token; no refusal shows it."""
    variable, file = str(members.get("token_env", "")), str(members.get("token_file", ""))
    if bool(variable) == bool(file):
        raise bad_option(
            where,
            "given both token_env and token_file" if variable else "without a token",
            "one of token_env (an environment variable) and token_file",
        )
    if file:
        return secret_file(f"{where}.token_file", file)
    token = environ.get(variable, "").strip()
    if not token:
        raise bad_option(
            f"{where}.token_env", variable, "an environment variable that holds the token"
        )
    return token


def _prefix(name: str, given: str) -> str:
    path = f"/{given.strip('/')}/"
    before, services, service = path.rstrip("/").rpartition("/services/")
    plain = all(each.isalnum() or each in "-._~/" for each in path) and path.isascii()
    if not services or not service or "/" in service or "//" in before or not plain:
        raise bad_option(
            name, given, "the service's path at that hub, such as /services/gpulease-lab2/"
        )
    return path


def _namespaces(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, (list, tuple)) or not all(
        each and isinstance(each, str) for each in given
    ):
        raise bad_option(name, str(given), 'a list such as ["lab2"]')
    return tuple(given)


def _flag(name: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise bad_option(name, str(given), "True or False")
    return given


def one_token_each(hubs: Iterable[FurtherHub], first_token: str) -> None:
    """Refuse a token that two hubs would be shown.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    taken = {first_token}
    for hub in hubs:
        if hub.token in taken:
            raise GPULeaseError(
                "bad_option",
                f"The service's token at hub {hub.name} is the one of another hub, too.",
                next_step="Give each hub a token of its own (service_token in setup_gpulease).",
                numbers={"option": "hubs"},
            )
        taken.add(hub.token)
