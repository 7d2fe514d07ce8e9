"""Makes the folder of packages that `make test-frameworks` adds to .venv, and prints its path.

It holds gigabytes, so it is kept outside the clone, under its pins' digest, for every clone to use.
Runs after set_up.py, under the same Python.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import set_up

PINS = set_up.ROOT / "constraints-frameworks.txt"


def main():
    """Make the folder unless it is there; return the exit status."""
    where = folder()
    if not where.exists():
        print("[set-up] packages of " + PINS.name + " into " + str(where), file=sys.stderr)
        partial = where.with_name(where.name + ".%d" % os.getpid())
        status = install(partial)
        if status:
            shutil.rmtree(partial, ignore_errors=True)
            return status
        try:
            partial.rename(where)
        except OSError:  # another one was quicker
            shutil.rmtree(partial)
    print(where)
    return 0


def folder():
    """Return where the packages of these pins are, for .venv's Python."""
    python = str(set_up.VENV / "bin" / "python")
    code = "import sys; print(sys.implementation.cache_tag)"
    tag = subprocess.check_output([python, "-c", code], text=True).strip()
    digest = hashlib.sha256(PINS.read_bytes() + tag.encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gpulease" / ("frameworks-" + digest)


def install(target):
    """Install the pins, and nothing that they depend on beside: .venv has the rest."""
    command = [*set_up.pip(), "install", "--no-input", "--quiet", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--no-deps", "--target", str(target)]
    return subprocess.run([*command, "-r", str(PINS)], stdout=sys.stderr, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
