"""A copy of the package that says to be of another version, for tests of what may meet."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import gpulease
from gpulease.protocol.names import PROTOCOL_VERSION

MAJOR, MINOR, PATCH = (int(part) for part in gpulease.__version__.split("."))
NEXT_PATCH = f"{MAJOR}.{MINOR}.{PATCH + 1}"
NEXT_MINOR = f"{MAJOR}.{MINOR + 1}.0"
NEXT_PROTOCOL = f"{int(PROTOCOL_VERSION.split('.')[0]) + 1}.0"


@dataclass(frozen=True)
class Package:
    """Where a copy lies.  Start programs in ``folder`` with ``environment``, and they import it."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.folder)}


def copy_of_package(folder: Path, version: str, protocol: str = PROTOCOL_VERSION) -> Package:
    """Copy the package that runs, with these two numbers in place of its own."""
    found = folder / "gpulease"
    shutil.copytree(
        Path(gpulease.__file__).parent, found, ignore=shutil.ignore_patterns("__pycache__")
    )
    _say(found / "version.py", "__version__", version)
    _say(found / "protocol" / "names.py", "PROTOCOL_VERSION: Final", protocol)
    return Package(folder)


def _say(file: Path, name: str, value: str) -> None:
    said = re.compile(rf'^{re.escape(name)} = ".*"$', re.MULTILINE)
    text, changed = said.subn(f'{name} = "{value}"', file.read_text())
    assert changed == 1, file
    file.write_text(text)
