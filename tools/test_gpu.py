"""Runs what needs a real GPU, with whatever this machine has: `make test-gpu`.

It is made for a machine that reaches nothing: a Python with torch, its driver, and this clone.
What that Python lacks beside comes from wheels in the folder `.whl`, which

    python3 tools/test_gpu.py --wheels [--python 3.12]

fills where an index is reachable (Python of the machine with the GPU, x86-64).  Where there is no
GPU the tests are skipped by name.  After the tests come facts of the GPU and its driver, each one
line of JSON and none of them a gate (tools/gpu_facts.py), as far as the time goes; `--facts` gives
them all of it.  The last line of the output is one JSON object: how many passed, what was skipped,
and the figures that were measured.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "frameworks"
WHEELS = ROOT / ".whl"
#: Module to package of what is needed beside torch, which is the machine's own.
NEEDED = {
    "cloudpickle": "cloudpickle",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
    "pytest": "pytest",
    "xxhash": "xxhash",
    "zmq": "pyzmq",
}
#: For all of it, and of that at least for facts.
SECONDS, FOR_FACTS = 570, 200


def main():
    """Do what was asked; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheels", action="store_true", help="fetch what may be missing there")
    parser.add_argument("--python", default="3.12", help="version of the Python there")
    parser.add_argument("--device", default="cuda", help="`standin` rehearses without a GPU")
    parser.add_argument("--facts", action="store_true", help="no tests, all time for facts")
    known, rest = parser.parse_known_args()
    return fetch(known.python) if known.wheels else run(known, rest)


def fetch(python):
    """Fill the folder of wheels, by the pins of this clone."""
    pins = dict(
        line.strip().lower().split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", "-d", str(WHEELS)]
    for tag in ("manylinux_2_28", "manylinux_2_26", "manylinux_2_17", "manylinux2014"):
        command += ["--platform", tag + "_x86_64"]
    return subprocess.call(command + [name + "==" + pins[name] for name in NEEDED.values()])


def run(known, arguments):
    """Run the tests under this Python, or the clone's own where this one has no torch."""
    own = ROOT / ".venv" / "bin" / "python"
    if not has("torch") and own.exists() and Path(sys.prefix) != own.parent.parent:
        setup = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "set_up_frameworks.py")],
            stdout=subprocess.PIPE, universal_newlines=True, check=True,
        )  # fmt: skip
        command = [str(own), __file__, *sys.argv[1:]]
        return subprocess.call(command, env=dict(os.environ, PYTHONPATH=setup.stdout.strip()))
    return test(known, arguments)


def test(known, arguments):
    """Run the tests and gather the facts under this Python; return the tests' exit status."""
    until = time.monotonic() + SECONDS
    with tempfile.TemporaryDirectory(prefix="gpulease-test-gpu-") as folder:
        environ = dict(os.environ, GPULEASE_TEST_DEVICE=known.device, OMP_NUM_THREADS="1")
        environ["GPULEASE_FIGURES"] = str(Path(folder, "figures.json"))
        environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # sums in one order
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        missing = [package for name, package in NEEDED.items() if not has(name)]
        if missing:
            status = install(missing, Path(folder, "site"))
            if status:
                return status
            paths.insert(1, str(Path(folder, "site")))
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        status = 0 if known.facts else tests(environ, arguments, SECONDS - FOR_FACTS)
        rehearsed = [] if known.device == "cuda" else ["--device", "cpu", "--sizes", "0.1"]
        left = ["--seconds", str(int(until - time.monotonic()))]
        subprocess.call(
            [sys.executable, str(ROOT / "tools" / "gpu_facts.py"), *left, *rehearsed], env=environ
        )
        figures = Path(environ["GPULEASE_FIGURES"])
        print(json.dumps(json.loads(figures.read_text()) if figures.exists() else {}))
        return status


def tests(environ, arguments, seconds):
    """Run the tests; return their exit status."""
    command = [sys.executable, "-m", "pytest", "-c", str(TESTS / "gpu.ini"), "-m", "gpu"]
    command += ["--confcutdir", str(TESTS), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    command += [str(TESTS / name) for name in ("test_devices.py", "test_gpu.py")]
    try:
        return subprocess.call(command + arguments, env=environ, timeout=seconds)
    except subprocess.TimeoutExpired:
        print("The tests did not end within %d s." % seconds, file=sys.stderr)
        return 124


def has(module):
    """Say whether this Python has a module."""
    return importlib.util.find_spec(module) is not None


def install(missing, folder):
    """Install packages from the folder of wheels, and from nowhere else; return the status."""
    if not WHEELS.is_dir():
        print(
            "This Python has no %s. Run `tools/test_gpu.py --wheels` where an index is reachable, "
            "and bring the folder .whl here." % ", ".join(missing),
            file=sys.stderr,
        )
        return 2
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-cache-dir", "--find-links", str(WHEELS), "--target", str(folder)]
    return subprocess.call(command + missing)


if __name__ == "__main__":
    sys.exit(main())
