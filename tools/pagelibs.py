"""Builds what the service's pages use of others: pagelibs/ to the bundles that the wheel ships.

The bundles stand beside the pages' own scripts, with the hash of their source.  `test` builds them
again elsewhere and compares.
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from frontend import HASH, ROOT, Tools, compare, write_json

SOURCE = ROOT / "pagelibs"
BUNDLES = ROOT / "gpulease" / "service" / "pages" / "static" / "lib"


def main(arguments=None):
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="The bundles of the service's pages.")
    parser.add_argument("command", choices=("build", "test"))
    command = parser.parse_args(arguments).command
    run = Tools(SOURCE)
    run.packages()
    if command == "build":
        shutil.rmtree(BUNDLES, ignore_errors=True)
        bundle(run, BUNDLES)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory) / "lib"
        bundle(run, built)
        return compare(built, BUNDLES, "The pages' bundles are not what pagelibs/ gives")


def bundle(run, target):
    """Bundle into ``target``, with the hash of the source."""
    run.npm("run", "bundle", "--", str(target))
    write_json(target / HASH, {"sha256": source_hash()})


def source_hash():
    """Return the SHA-256 over everything that the bundles are made of."""
    files = [SOURCE / name for name in ("package.json", "package-lock.json", "bundle.mjs")]
    for folder in ("src", "licences"):
        files += [path for path in (SOURCE / folder).rglob("*") if path.is_file()]
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(path.relative_to(SOURCE).as_posix().encode() + b"\0")
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
