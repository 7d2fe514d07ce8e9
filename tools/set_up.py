"""Makes the project's own environment in .venv, with visible progress: `make` calls it.

Runs under the system's Python before anything is installed, so it uses the standard library
alone and keeps to syntax that an older Python can read, to be able to say that it is too old.
The extras in pyproject.toml say what the environment contains.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)

#: A stamp file is written for each extra that an installed one contains.
CONTAINS = {
    "demo": ("demo",),
    "test": ("demo", "test"),
    "check": ("demo", "test", "check"),
    "docs": ("docs",),
    "bench": ("demo", "bench"),
}


def main(arguments):
    """Install the extras named on the command line; return the exit status."""
    extras = arguments or ["check"]
    problem = unsuitable()
    if problem:
        print("gpulease: " + problem, file=sys.stderr)
        return 2
    started = time.monotonic()
    names = ",".join(extras)
    step(1, "environment .venv with Python {}.{}".format(*sys.version_info[:2]))
    make_environment()
    step(2, "packages of gpulease[" + names + "] (a few minutes the first time)")
    status = install(extras)
    if status:
        return status
    for extra in extras:
        for contained in CONTAINS.get(extra, (extra,)):
            (VENV / (".ready-" + contained)).touch()
    step(3, "ready after %.0f s" % (time.monotonic() - started))
    return 0


def unsuitable():
    """Return why this machine cannot run gpulease, or an empty string."""
    if not sys.platform.startswith("linux"):
        return (
            "it runs on Linux only (it needs /proc and process subreapers); this is "
            + sys.platform
            + ". A Linux virtual machine or container works."
        )
    if sys.version_info[:2] < OLDEST:
        return (
            "it needs Python {}.{} or newer; {} is {}.{}. "
            "Install a newer one, or name it: make PYTHON=/path/to/python3.11 ..."
        ).format(*OLDEST, sys.executable, *sys.version_info[:2])
    return ""


def step(number, text):
    """Tell where set-up stands."""
    print("[set-up %d/3] %s" % (number, text), flush=True)


def make_environment():
    """Create .venv unless its Python runs already; without ensurepip (Debian) pip stays outside."""
    python = VENV / "bin" / "python"
    if python.exists() and subprocess.run([str(python), "-c", ""], check=False).returncode == 0:
        return
    command = [sys.executable, "-m", "venv", "--clear"]
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        command.append("--without-pip")
    subprocess.run([*command, str(VENV)], check=True)


def pip():
    """Return the command of a pip that installs into .venv."""
    python = str(VENV / "bin" / "python")
    inside = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
    if inside.returncode == 0:
        return [python, "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", python]


def install(extras):
    """Install the package in place with these extras, at the pinned versions."""
    command = [
        *pip(),
        *("install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
        *("-c", str(ROOT / "constraints.txt"), "-e", "{}[{}]".format(ROOT, ",".join(extras))),
    ]
    lines = []
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    with process:
        seen = 0
        for line in process.stdout:
            lines.append(line)
            if line.lstrip().startswith("Collecting"):
                seen += 1
                show(seen, line.split("(from")[0].strip())
            elif line.startswith("Installing collected packages:"):
                # The rest, and the longest, of what pip does; it says no more until the end.
                show(line.count(",") + 1, "to install now (minutes the first time)", last=True)
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    (VENV / "set-up.log").write_text("".join(lines), encoding="utf-8")
    if process.returncode:
        print("".join(lines[-30:]), file=sys.stderr)
        print("gpulease: pip failed; its whole output is in .venv/set-up.log", file=sys.stderr)
    return process.returncode


def show(count, text, last=False):
    """Show one package: over the line before on a terminal, every 20th and the last elsewhere."""
    text = text.replace(str(ROOT), "gpulease")[:70]
    if sys.stdout.isatty():
        print("\r\033[K    %3d  %s" % (count, text), end="", flush=True)
    elif last or count % 20 == 0:
        print("    %3d  %s" % (count, text), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
