"""Makes .venv-hub55: the environment .venv with the oldest JupyterHub and KubeSpawner that fit.

The stable Zero to JupyterHub chart ships JupyterHub 5.5, so what runs in and beside the hub is
tested with both.  The environment holds only what differs (constraints-hub55.txt) and looks into
.venv for the rest, so it takes seconds.  Runs after set_up.py, under the same Python.
"""

import subprocess
import sys

import set_up

HERE = set_up.ROOT / ".venv-hub55"
PINS = set_up.ROOT / "constraints-hub55.txt"


def main():
    """Make the environment unless it is as the pins say; return the exit status."""
    packages = run_there("import sysconfig; print(sysconfig.get_path('purelib'))")
    wanted = PINS.read_text(encoding="utf-8") + packages
    stamp = HERE / ".pins"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return 0
    print("[set-up] .venv-hub55 with " + ", ".join(pins()), flush=True)
    base = run_there("import sys; print(sys._base_executable)")
    subprocess.run([base, "-m", "venv", "--clear", "--without-pip", str(HERE)], check=True)
    look_into(packages)
    command = [*pip(), "--python", str(HERE / "bin" / "python"), "install", "--no-input"]
    command += ["--quiet", "--disable-pip-version-check", "--progress-bar", "off", *pins()]
    done = subprocess.run(command, check=False)
    if done.returncode == 0:
        stamp.write_text(wanted, encoding="utf-8")
    return done.returncode


def run_there(code):
    """Return what Python code prints in .venv."""
    python = str(set_up.VENV / "bin" / "python")
    return subprocess.check_output([python, "-c", code], text=True).strip()


def pip():
    """Return the command of a pip: .venv's own, or that of the Python which runs this."""
    command = set_up.pip()
    return command[: command.index("pip") + 1]


def pins():
    """Return the requirements that differ from constraints.txt."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def look_into(packages):
    """Let the environment find .venv's packages and shared data after its own."""
    own = min(HERE.glob("lib/python*/site-packages"))
    line = "import site; site.addsitedir({!r})\n".format(packages)
    (own / "_the_rest.pth").write_text(line, encoding="utf-8")
    for name in ("share", "etc"):
        (HERE / name).symlink_to(set_up.VENV / name)


if __name__ == "__main__":
    sys.exit(main())
