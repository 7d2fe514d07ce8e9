"""Builds the wheel, installs it alone in an empty environment, and runs a GPU cell there.

    python3 tools/try_wheel.py

It shows that the base install has all that `%gpu connect local` needs, on the Python that runs it.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = """
from jupyter_client.manager import start_new_kernel

CELLS = (
    "%load_ext gpulease",
    "%gpu connect local",
    "x = [1, 2]",
    "%%gpu\\nx.append(3); y = x",
    "assert x == [1, 2, 3] and y is x",
    "%gpu return",
)

manager, client = start_new_kernel(kernel_name="python3", startup_timeout=300)
for cell in CELLS:
    reply = client.execute_interactive(cell, timeout=300)["content"]
    if reply["status"] != "ok":
        raise SystemExit(f"{cell!r}: {reply['ename']}: {reply['evalue']}")
client.stop_channels()
manager.shutdown_kernel()
print("a GPU cell of the wheel alone changed and made variables of the notebook")
"""


def main():
    """Return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "empty", with_pip=True)
        python = place / "empty" / "bin" / "python"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run([*pip, "wheel", "--no-deps", "--wheel-dir", place / "wheels", ROOT])
        (wheel,) = (place / "wheels").glob("gpulease-*.whl")
        run([*pip, "install", "--constraint", ROOT / "constraints.txt", wheel])
        run([python, "-c", NOTEBOOK], cwd=place)
    return 0


def run(command, **options):
    """Run a command; raises CalledProcessError where it fails."""
    subprocess.run([str(part) for part in command], check=True, **options)


if __name__ == "__main__":
    sys.exit(main())
