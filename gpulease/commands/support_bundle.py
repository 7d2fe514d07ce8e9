"""``gpulease support-bundle``: what somebody needs who helps, in one file without a secret.

Owns what is collected, and that no secret of the process, its files and its settings is in any of
it: every text is searched for each of them before it is written.  No name of a person is asked for.
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

from gpulease import __version__
from gpulease.errors import GPULeaseError
from gpulease.private_files import UMASK
from gpulease.protocol.names import ENV_SERVICE_URL

if TYPE_CHECKING:
    from traitlets.config import Config

#: Variables and settings whose values are never written, and are searched for everywhere.
_SECRET_NAMES: Final = re.compile(
    r"(?i).*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|DATABASE_URL|COOKIE|WEBHOOK).*|.*KEY"
)
#: Anything shorter is searched for in no text: a word of a sentence would be cut out.
_SHORTEST: Final = 6
_SHOWN: Final = ("GPULEASE", "JUPYTERHUB", "KUBERNETES", "POD_", "PYTHON", "TZ", "LANG")
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
    sys.stdout.write(f"{arguments.file}: read it before you send it.\n")
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
        "settings.json": _json(_plain(config)),
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
    """Return every secret that this process knows, with the passwords inside addresses."""
    found = set()
    for name, value in (*environment.items(), *_leaves(settings)):
        found |= _passwords(value)
        if name == "token_env":  # a further hub's, whatever its variable is called
            found.add(environment.get(value, "").strip())
        elif _SECRET_NAMES.fullmatch(name):
            found.add(value)
            path = Path(value)
            if name.lower().endswith("_file") and path.is_file():
                found.add(path.read_text(encoding="utf-8", errors="replace").strip())
    return {each for each in found if len(each) >= _SHORTEST}


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
        name: _REMOVED if _SECRET_NAMES.fullmatch(name) else value
        for name, value in sorted(environment.items())
        if name.startswith(_SHOWN)
    }


def _plain(value: Any, name: str = "") -> Any:
    """Return settings as JSON, those with a secret's name removed."""
    if isinstance(value, Mapping):
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
