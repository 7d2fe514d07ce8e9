"""``gpulease support-bundle``: what somebody needs who helps, in one file without a secret.

What is shown is named here: variables and settings of which it is known that they are no secret.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from gpulease import __version__, terminal
from gpulease.errors import GPULeaseError
from gpulease.private_files import UMASK
from gpulease.protocol import names
from gpulease.protocol.names import ENV_SERVICE_URL

if TYPE_CHECKING:
    from traitlets.config import Config

#: Variables and settings whose values are never written, and are searched for everywhere.
_SECRET_NAMES: Final = re.compile(
    r"(?i).*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL|COOKIE|WEBHOOK|KEYS?$).*"
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
#: The classes of the configuration whose settings are known, and of those what holds variables.
_CLASSES: Final = ("GPULeaseService", "KubernetesSettings")
_VARIABLES: Final = "environment"
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
    try:
        with arguments.file.open("xb") as target:
            target.write(packed)
    except OSError as error:
        raise GPULeaseError(
            "unreadable_file",
            f"{arguments.file} cannot be written: {error.strerror}.",
            next_step="Name a new file in a folder that you may write.",
        ) from error
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
        found |= _passwords(value)
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
    shown = {value for name, value in environment.items() if _is_shown(name)}
    unknown = [
        *((name, value) for name, value in environment.items() if not _is_shown(name)),
        *(leaf for name in settings if name not in _CLASSES for leaf in _leaves(settings[name])),
        *(
            leaf
            for name in _CLASSES
            for leaf in _leaves(settings.get(name, {}).get(_VARIABLES, {}))
        ),
    ]
    for name, value in unknown:
        plain = _EVERY_SHELL.fullmatch(name) or _NO_SECRET.fullmatch(value) or value in shown
        if len(value) >= _MAYBE and not plain:
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
    """Return a text without these secrets, as they are and as JSON writes them."""
    for secret in secrets:
        text = text.replace(secret, _REMOVED).replace(json.dumps(secret)[1:-1], _REMOVED)
    return re.sub(r"(\w+://[^\s:/@\"']*:)[^\s@\"']+@", rf"\1{_REMOVED}@", text)


def _passwords(value: str) -> set[str]:
    """Return the password inside an address, as it is written there and as it is."""
    try:
        password = urlsplit(value).password if "://" in value else None
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()


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
        name: value if _is_shown(name) else _REMOVED
        for name, value in sorted(environment.items())
        if _is_shown(name) or name.startswith(_OURS)
    }


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the classes that are known, of others their names."""
    return {
        name: _plain(each) if name in _CLASSES else dict.fromkeys(each, _REMOVED)
        for name, each in config.items()
    }


def _plain(value: Any, name: str = "") -> Any:
    """Return settings as JSON, those with a secret's name, or of nobody knows what, removed."""
    if isinstance(value, Mapping):
        if name == _VARIABLES:
            return dict.fromkeys(map(str, value), _REMOVED)
        return {str(key): _plain(each, str(key)) for key, each in value.items()}
    if name and _SECRET_NAMES.fullmatch(name):
        return _REMOVED
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


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
        return str(error.read().decode())


def _said(asked: Callable[[], str]) -> str:
    """Return the answer, or why there is none: half a bundle helps, too."""
    try:
        return asked()
    except (GPULeaseError, OSError, ValueError, ImportError) as error:
        return f"not to be had: {error}"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str)
