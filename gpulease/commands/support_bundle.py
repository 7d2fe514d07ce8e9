"""``gpulease support-bundle``: what somebody needs who helps, in one file without a secret.

What is shown is named here: variables and settings of which it is known that they are no secret,
and of an address in them scheme, host, port and path.
Whatever else the process, its files and its settings hold may be one, however it is called: every
text is searched for each of them before it is written.  No name of a person is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import re
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from gpulease import __version__
from gpulease.commands.files import usable
from gpulease.errors import GPULeaseError
from gpulease.protocol import names
from gpulease.protocol.names import ENV_SERVICE_URL
from gpulease.system import terminal
from gpulease.system.private_files import UMASK

if TYPE_CHECKING:
    from traitlets.config import Config

#: Variables and settings whose values are never written, and are searched for everywhere.
_SECRET_NAMES: Final = re.compile(
    r"(?i).*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL|COOKIE|WEBHOOK|SMTP_USER|KEYS?$).*"
)
#: Anything shorter is searched for in no text: a word of a sentence would be cut out.
_SHORTEST: Final = 6
#: Variables that are shown with their values, beside those of ``protocol.names``.
_SHOWN: Final = re.compile(
    r"JUPYTERHUB_((ACTIVITY|API|BASE|SERVICE|PUBLIC|PUBLIC_HUB|OAUTH_CALLBACK)_URL|CLIENT_ID|HOST"
    r"|SERVICE_NAME|SERVICE_PREFIX|SERVER_NAME|OAUTH_(ACCESS_|CLIENT_ALLOWED_)?SCOPES)"
    r"|KUBERNETES_(SERVICE_(HOST|PORT\w*)|PORT(_443_TCP\w*)?)|POD_(NAME|NAMESPACE|IP|UID)"
    r"|PYTHON(PATH|HOME|UNBUFFERED|WARNINGS|UTF8)|TZ|LANG|LC_\w+"
)
#: Variables whose first letters tell that they are worth a line, though not with what value.
_OURS: Final = ("GPULEASE", "JUPYTERHUB", "KUBERNETES", "POD_")
#: Of any other variable the value may be a secret if it is longer than most words, ...
_MAYBE: Final = 8
#: ... but for those that every shell has, figures, paths, and what is said everywhere.
_EVERY_SHELL: Final = re.compile(
    r"_|PATH|HOME|(OLD)?PWD|USER(NAME)?|LOGNAME|HOSTNAME|SHELL|SHLVL|TERM|LS_COLORS|XDG_\w+"
)
_NO_SECRET: Final = re.compile(
    r"[\d.:,%-]+|(/[^:]*)(:/[^:]*)*|gpulease|jupyterhub|kubernetes|localhost"
)
#: The classes of the configuration whose settings are known.
_CLASSES: Final = ("GPULeaseService", "KubernetesSettings")
#: Of what is shown: a scheme, and an image's digest behind its name.
_SCHEME: Final = re.compile(r"[\w+.-]+://")
_DIGEST: Final = re.compile(r"@sha\d+:[0-9a-f]+$")
_MAIL_ADDRESS: Final = re.compile(r"[^\s@:/]+@[^\s@:/]+")
#: What ends an address's path: none of what follows is shown.
_AFTER_PATH: Final = re.compile(r"[?#;&]")
#: What is shown of a further hub.
_HUB: Final = (
    "api_url", "token_env", "token_file", "prefix", "namespaces", "trusted_servers",
)  # fmt: skip
_SECONDS: Final = 10.0
_REMOVED: Final = "[removed]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a new .tar.gz; - for stdout")
    parser.add_argument("--config", metavar="FILE", help="the service's configuration file")


def run(arguments: argparse.Namespace) -> int:
    """Collect and write; return the exit status.

    Raises:
        GPULeaseError: ``bad_option``, ``unreadable_file``.
    """
    os.umask(UMASK)
    config = _configuration(arguments.config or "")
    texts = collect(arguments.config or "", config, os.environ)
    packed = bundle(texts, secrets_of(os.environ, config))
    if str(arguments.file) == "-":
        sys.stdout.buffer.write(packed)
        return 0
    step = "Name a new file in a folder that you may write."
    with usable(arguments.file, "written", step), arguments.file.open("xb") as target:
        target.write(packed)
    terminal.say(f"{arguments.file}: read it before you send it.")
    return 0


def _configuration(file: str) -> Config:
    """Return the service's configuration, empty without a file.

    Raises:
        GPULeaseError: ``bad_option``.
    """
    from traitlets.config import Config

    from gpulease.service.settings.reading import read_configuration

    return read_configuration("--config", file) if file else Config()


def collect(config_file: str, config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a bundle by their file names; what cannot be had says why."""
    found = {
        "about.json": _json(_about()),
        "environment.json": _json(_variables(environment)),
        "settings.json": _json(_settings(config)),
        "doctor.json": _said(lambda: _doctor(config_file, environment)),
    }
    service = config.GPULeaseService
    listening = str(service.get("service_url") or "http://127.0.0.1:9980")
    prefix = environment.get("JUPYTERHUB_SERVICE_PREFIX", "/services/gpulease/")
    health = f"{_here(listening)}{prefix}"
    # Beside the service, not in its pod: where the other commands find it.
    if elsewhere := "" if service.get("service_url") else environment.get(ENV_SERVICE_URL, ""):
        health = f"{elsewhere.rstrip('/')}/"
    found["health.json"] = _said(lambda: _asked(health, "api/health"))
    if metrics := str(service.get("metrics_url") or ""):
        found["metrics.txt"] = _said(lambda: _asked(_here(metrics), "/metrics"))
    return found


def bundle(texts: Mapping[str, str], secrets: Iterable[str]) -> bytes:
    """Return the archive, with every secret taken out of every text."""
    secrets = sorted(secrets, key=len, reverse=True)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, text in sorted(texts.items()):
            content = without(text, secrets).encode()
            entry = tarfile.TarInfo(f"gpulease-support/{name}")
            entry.size, entry.mode = len(content), 0o600
            entry.mtime = int(datetime.now(UTC).timestamp())
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def secrets_of(environment: Mapping[str, str], settings: Mapping[str, Any]) -> set[str]:
    """Return every secret that this process may know, with the passwords inside addresses."""
    found = set()
    for name, value in (*environment.items(), *_leaves(settings)):
        found |= _hidden_in(value)
        if name == "token_env":  # a further hub's, whatever its variable is called
            found.add(environment.get(value, "").strip())
        elif _SECRET_NAMES.fullmatch(name):
            found.add(value)
        if name.lower().endswith("_file"):
            found |= _in_file(Path(value))
    found |= set(_maybe(environment, settings))
    return {each for each in found if len(each) >= _SHORTEST}


def _maybe(environment: Mapping[str, str], settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what may be a secret for nobody knows what it is."""
    plain = {value for name, value in environment.items() if _is_shown(name)}
    plain |= {value for _, value in _leaves(_settings(settings))}
    for name, value in (*environment.items(), *_leaves(settings)):
        known = _EVERY_SHELL.fullmatch(name) or _NO_SECRET.fullmatch(value) or value in plain
        if len(value) >= _MAYBE and not known:
            yield value


def _in_file(path: Path) -> set[str]:
    """Return the secret that a file holds: its one line, if it is such a file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return set()
    return {text} if "\n" not in text else set()


def _is_shown(name: str) -> bool:
    ours = name in {value for key, value in vars(names).items() if key.startswith("ENV_")}
    return bool(ours or _SHOWN.fullmatch(name)) and not _SECRET_NAMES.fullmatch(name)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in settings with the name under which it stands."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, str(key))
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _leaves(each, name)
    elif isinstance(value, str):
        yield name, value


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, as they are and as JSON writes them.

    Logins and queries of addresses are removed, too.
    """
    for secret in secrets:
        text = text.replace(secret, _REMOVED).replace(json.dumps(secret)[1:-1], _REMOVED)
    text = re.sub(r"(\w://)[^\s/@\"']*:[^\s@\"']+@", rf"\1{_REMOVED}@", text)
    text = re.sub(r"(\w://)[^\s/@\"']+@", rf"\1{_REMOVED}@", text)
    text = re.sub(r"[\w.+-]*:[^\s/@\"':]+@(?!sha\d+:)(?=[\w\[])", f"{_REMOVED}@", text)
    return re.sub(r"(\w://[^\s?\"']*\?)[^\s\"']+", rf"\1{_REMOVED}", text)


def shown(value: str) -> str:
    """Return a value without login and query: of an address scheme, host, port and path."""
    digest = found[0] if (found := _DIGEST.search(value)) else ""
    scheme = found[0] if (found := _SCHEME.match(value)) else ""
    rest = value[len(scheme) : len(value) - len(digest)]
    if "@" in rest and not (_MAIL_ADDRESS.fullmatch(rest) and not scheme):
        login, _, rest = rest.rpartition("@")
        if _AFTER_PATH.search(login):  # a password with a question mark, or an @ in a query
            return f"{scheme}{_REMOVED}"
        rest = f"{_REMOVED}@{rest}"
    if scheme or "/" in rest:
        path, *more = _AFTER_PATH.split(rest, maxsplit=1)
        rest = f"{path}?{_REMOVED}" if more else path
    return f"{scheme}{rest}{digest}"


def _hidden_in(value: str) -> set[str]:
    """Return what an address hides: its password, and what may be a secret in login and query.

    As it is written there, and as it is.
    """
    if shown(value) == value:
        return set()
    login, at, _ = _SCHEME.sub("", _DIGEST.sub("", value), count=1).rpartition("@")
    user, _, password = login.partition(":")
    query = _AFTER_PATH.split(value)[1:]
    maybe = [user, *query, *(each.partition("=")[2] for each in query)]
    found = {each for each in maybe if len(each) >= _MAYBE and not _NO_SECRET.fullmatch(each)}
    found |= {password} if at else set()
    return found | {unquote(each) for each in found}


def _about() -> dict[str, Any]:
    wanted = (
        *("gpulease", "jupyterhub", "jupyterhub-kubespawner", "tornado", "sqlalchemy"),
        *("kubernetes", "psycopg", "pyzmq", "ipykernel", "jupyterlab"),
    )
    return {
        "at": datetime.now(UTC).isoformat(),
        "version": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in wanted},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: shown(value) if _is_shown(name) else _REMOVED
        for name, value in sorted(environment.items())
        if _is_shown(name) or name.startswith(_OURS)
    }


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the known classes have, of all others their names."""
    return {
        name: {
            str(key): _plain(str(key), value) if key in traits else _REMOVED
            for key, value in each.items()
        }
        for name, each in config.items()
        for traits in [_traits(name)]
    }


def _traits(name: str) -> Collection[str]:
    """Return the names of a class's own settings that are no secrets; none of other classes."""
    if name not in _CLASSES:
        return ()
    try:
        from gpulease.service.settings import application
    except ImportError:  # not where the service is installed
        return ()
    found = getattr(application, name).class_trait_names(config=True)
    return [each for each in found if not _SECRET_NAMES.fullmatch(each)]


def _plain(name: str, value: Any) -> Any:
    """Return one known setting as JSON; what stands in it that nobody knows is removed."""
    if not isinstance(value, Mapping):
        return _flat(value)
    if name == "hubs":
        return {str(key): _hub(each) for key, each in value.items()}
    return {
        str(key): each if isinstance(each, int | float) else _REMOVED for key, each in value.items()
    }


def _hub(given: Any) -> Any:
    """Return one further hub, of which the members are known."""
    if not isinstance(given, Mapping):
        return _REMOVED
    return {str(key): _flat(each) if key in _HUB else _REMOVED for key, each in given.items()}


def _flat(value: Any) -> Any:
    """Return a text, a figure or a list of them."""
    if isinstance(value, list | tuple | set):
        return [_flat(each) if isinstance(each, str | int | float) else _REMOVED for each in value]
    if isinstance(value, str):
        return shown(value)
    return value if isinstance(value, int | float | None) else _REMOVED


def _doctor(config_file: str, environment: Mapping[str, str]) -> str:
    from gpulease.commands.doctor import look

    return _json([asdict(each) for each in asyncio.run(look(config_file, environment))])


def _here(url: str) -> str:
    """Return an address at which this machine itself listens."""
    return url.replace("//0.0.0.0", "//127.0.0.1").rstrip("/")


def _asked(base: str, path: str) -> str:
    try:
        # The service's own addresses, from its configuration.
        with urllib.request.urlopen(f"{base}{path}", timeout=_SECONDS) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:  # health answers 503 with what is wrong
        with error:
            return str(error.read().decode())


def _said(asked: Callable[[], str]) -> str:
    """Return the answer, or why there is none: half a bundle helps, too."""
    try:
        return asked()
    except (GPULeaseError, OSError, ValueError, ImportError) as error:
        return f"not to be had: {error}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str)
