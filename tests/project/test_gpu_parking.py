"""The parking of a process that uses a GPU: which calls, in which order, with a stand-in driver."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler

TOOLS = Path(__file__).parents[2] / "tools"
#: The driver's calls with a state each call moves on; the checkpoint is refused for process 13.
SOURCE = """
#include <string.h>
static int state; static unsigned waits;
int cuInit(unsigned flags) { return (int)flags; }
int cuGetErrorName(int code, const char **name) {
  *name = code ? "CUDA_ERROR_X" : "none"; return 0;
}
int cuCheckpointProcessGetState(int pid, int *found) { (void)pid; *found = state; return 0; }
static int from(int before, int after) { if (state != before) return 1; state = after; return 0; }
int cuCheckpointProcessLock(int pid, void *words) {
  (void)pid; memcpy(&waits, words, sizeof waits); return waits == 10000 ? from(0, 1) : 1;
}
int cuCheckpointProcessCheckpoint(int pid, void *words) {
  (void)words; return pid == 13 ? 801 : from(1, 2);
}
int cuCheckpointProcessRestore(int pid, void *words) { (void)pid; (void)words; return from(2, 1); }
int cuCheckpointProcessUnlock(int pid, void *words) { (void)pid; (void)words; return from(1, 0); }
"""


def steps(tmp_path: Path, pid: int) -> list[list[str]]:
    """Park a process and bring it back; return each call with its error and the state after it."""
    library = tmp_path / "libcuda.so.1"
    (tmp_path / "cuda.c").write_text(SOURCE)
    words = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*words, "-o", str(library), str(tmp_path / "cuda.c")], check=True)
    code = (
        f"import json, gpu_parking; found = gpu_parking.Checkpoint({pid}); told = found.park()\n"
        "told += found.bring_back() if told[-1]['state'] == 'checkpointed' else []\n"
        "print(json.dumps([[each['call'], each['error'], each['state']] for each in told]))"
    )
    environ = {"GPULEASE_LIBCUDA": str(library), "PYTHONPATH": str(TOOLS)}
    found: list[list[str]] = json.loads(
        subprocess.check_output([sys.executable, "-c", code], env=environ)
    )
    return found


def test_a_process_is_locked_parked_restored_and_unlocked(tmp_path: Path) -> None:
    assert steps(tmp_path, 7) == [
        ["Lock", "", "locked"],
        ["Checkpoint", "", "checkpointed"],
        ["Restore", "", "locked"],
        ["Unlock", "", "running"],
    ]


def test_a_refused_process_is_unlocked_again(tmp_path: Path) -> None:
    assert steps(tmp_path, 13) == [
        ["Lock", "", "locked"],
        ["Checkpoint", "CUDA_ERROR_X", "locked"],
        ["Unlock", "", "running"],
    ]
