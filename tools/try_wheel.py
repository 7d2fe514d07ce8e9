"""Builds the wheel, installs it alone in an empty environment, and runs a GPU cell there.

    python3 tools/try_wheel.py

It shows that the base install has all that `%gpu connect local` needs, on the Python that runs it,
and that a Python which carries no variables refuses the cell.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = """
import sys

from jupyter_client.manager import start_new_kernel

from gpulease.sides.versions import NEWEST

CARRIED = (
    "%load_ext gpulease",
    "%gpu connect local",
    "x = [1, 2]",
    "%%gpu\\nx.append(3); y = x",
    "assert x == [1, 2, 3] and y is x",
    "%gpu return",
)
#: On a newer Python: a GPU cell is refused and changes nothing, and --else cpu runs it here.
REFUSED = (
    "%load_ext gpulease",
    "x = [1, 2]",
    "%%gpu\\nx.append(3)",
    "%%gpu --else cpu\\nx.append(4)",
    "assert x == [1, 2, 4]",
)

carried = sys.version_info[:2] <= NEWEST
manager, client = start_new_kernel(kernel_name="python3", startup_timeout=300)
for cell in CARRIED if carried else REFUSED:
    reply = client.execute_interactive(cell, timeout=300)["content"]
    refused = not carried and cell == REFUSED[2]
    wanted = "Variables travel between notebook and GPU on Python" if refused else ""
    if reply["status"] != ("error" if refused else "ok") or wanted not in reply.get("evalue", ""):
        raise SystemExit(f"{cell!r}: {reply}")
client.stop_channels()
manager.shutdown_kernel()
print("The wheel alone " + ("ran a GPU cell." if carried else "refused a GPU cell with words."))
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
