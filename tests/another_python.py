"""Another minor version of Python that has gpulease, beside this one, for tests of what may meet.

`tools/test-pythons` names it once its tree has an environment; elsewhere these tests are skipped.
"""

import os
import sys
from pathlib import Path

import pytest

VERSION = os.environ.get("GPULEASE_OTHER_PYTHON", "")
_HERE = ".".join(map(str, sys.version_info[:2]))
needed = pytest.mark.skipif(
    VERSION in ("", _HERE), reason="GPULEASE_OTHER_PYTHON names no other version of Python"
)
#: Where its file system lies in this one.
TREE = Path.home() / ".cache" / "gpulease" / "pythons" / VERSION


def command(*arguments: str) -> list[str]:
    """Return what starts that Python with these arguments."""
    in_python = Path(__file__).parents[1] / "tools" / "in-python"
    return [str(in_python), VERSION, ".venv/bin/python", *arguments]
