"""Parks a process that uses a GPU and brings it back, by the driver's own checkpoint calls.

Part of tools/gpu_facts.py.  The process to be parked runs this file; whoever parks it (itself or
its parent) notes the time of each call, its error, and what the driver says of memory and processes
meanwhile.
"""

import ctypes
import json
import os
import select
import subprocess
import sys
import time

#: The driver's library; another one in a rehearsal.
LIBCUDA = os.environ.get("GPULEASE_LIBCUDA", "libcuda.so.1")
STATES = {0: "running", 1: "locked", 2: "checkpointed", 3: "failed"}
LOCK_MILLISECONDS = 10_000
ANSWER_SECONDS = 90


class Checkpoint:
    """The driver's calls on one process (CUDA 12.8 and newer, driver 570 and newer).

    Arguments have 64 bytes each; those of a lock begin with its time limit in milliseconds.
    """

    def __init__(self, pid):
        self.pid = pid
        self.library = ctypes.CDLL(LIBCUDA)
        self.library.cuInit(0)

    def call(self, name):
        """Make one of the four calls; return its seconds, its error and the state after it."""
        began = time.monotonic()
        try:
            function = getattr(self.library, "cuCheckpointProcess" + name)
        except AttributeError:
            return {"call": name, "error": "this driver has no such call"}
        words = (ctypes.c_uint64 * 8)()
        if name == "Lock":
            words[0] = LOCK_MILLISECONDS  # timeoutMs, and 32 bits that are reserved
        code = function(ctypes.c_int(self.pid), ctypes.byref(words))
        seconds = round(time.monotonic() - began, 4)
        return {"call": name, "seconds": seconds, "error": self.name(code), "state": self.state()}

    def state(self):
        """Return the process's state in the driver's words."""
        found = ctypes.c_int(-1)
        try:
            code = self.library.cuCheckpointProcessGetState(
                ctypes.c_int(self.pid), ctypes.byref(found)
            )
        except AttributeError:
            return "unknown"
        return self.name(code) if code else STATES.get(found.value, found.value)

    def name(self, code):
        """Return the driver's name of an error, "" for none."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return "" if code == 0 else (text.value or b"%d" % code).decode()

    def park(self):
        """Lock and checkpoint; unlock again where that is refused."""
        steps = [self.call("Lock")]
        if not steps[-1]["error"]:
            steps.append(self.call("Checkpoint"))
            if steps[-1]["error"]:
                steps.append(self.call("Unlock"))
        return steps

    def bring_back(self):
        """Restore and unlock."""
        return [self.call("Restore"), self.call("Unlock")]


def parked(device, gigabytes, by, case=""):
    """Park a process of so many gigabytes and bring it back; return all that was seen."""
    command = [sys.executable, __file__, device, gigabytes, by, case]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        found = {"before": hear(child), "nvml_before": nvml(child.pid)}
        if by == "self":
            found["park"] = ask(child, "park")
        else:
            checkpoint = Checkpoint(child.pid)
            found["park"] = checkpoint.park()
        found["nvml_parked"] = nvml(child.pid)
        done = found["park"][-1]
        if done["call"] == "Checkpoint" and not done["error"]:
            found["back"] = ask(child, "back") if by == "self" else checkpoint.bring_back()
        found["after"] = ask(child, "check")
        found["nvml_after"] = nvml(child.pid)
        return found
    finally:
        child.kill()
        child.communicate()


def ask(child, word):
    """Give an order; return the answer."""
    child.stdin.write(word + "\n")
    child.stdin.flush()
    return hear(child)


def hear(child):
    """Return the next line of the process.

    Raises:
        TimeoutError: it hangs.
        EOFError: it is gone.
    """
    ready, _, _ = select.select([child.stdout], [], [], ANSWER_SECONDS)
    if not ready:
        raise TimeoutError("no answer within %d s" % ANSWER_SECONDS)
    line = child.stdout.readline()
    if not line:
        raise EOFError("the process ended with %s" % child.wait())
    return json.loads(line)


def nvml(pid):
    """Return what NVML says of memory and of a process now."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        held = {each.pid: each.usedGpuMemory for each in
                pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}  # fmt: skip
        used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
        pynvml.nvmlShutdown()
    except Exception as error:  # noqa: BLE001 - a fact, too
        return {"error": repr(error)}
    # In a container the driver's process numbers are the node's: all are said.
    return {"used": used, "listed": pid in held, "processes": held}


class Work:
    """What a process has on the device, and whether it still works."""

    def __init__(self, device, gigabytes, case):
        import torch

        self.torch, self.device = torch, device
        count = int(float(gigabytes) * 1e9 / 4)
        room = torch.cuda.mem_get_info()[0] if device == "cuda" else 4e9
        if count * 4 > room - 2e9:
            raise MemoryError("the device has %.0f GB left" % (room / 1e9))
        self.big = torch.arange(count, dtype=torch.int32, device=device)
        self.total = self.sum()
        self.graph = self.compiled = None
        self.told = {"case": case or "plain"}
        self.note("graph", self.capture)
        self.note("compiled", self.compile)
        if case:
            self.note(case, getattr(self, case))

    def note(self, name, function):
        """Keep what came of a step, or its error."""
        try:
            self.told[name] = function()
        except Exception as error:  # noqa: BLE001 - a fact, too
            self.told[name] = "%s: %s" % (type(error).__name__, str(error)[:300])

    def sum(self):
        """Return the sum of all that is there."""
        return int(self.big.sum(dtype=self.torch.int64).item())

    def capture(self):
        """Capture a CUDA graph."""
        if self.device != "cuda":
            return "only on a GPU"
        torch = self.torch
        self.input = torch.ones(1000, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.output = self.input * 3
        self.graph = graph
        return self.replay()

    def replay(self):
        """Run the graph on new input."""
        if self.graph is None:
            return "none"
        self.input.fill_(2)
        self.graph.replay()
        return float(self.output.sum().item())

    def compile(self):
        """Compile a module and run it."""
        torch = self.torch
        torch.manual_seed(0)
        self.compiled = torch.compile(torch.nn.Linear(8, 8).to(self.device))
        return self.run()

    def run(self):
        """Run the compiled module."""
        if self.compiled is None:
            return "none"
        return float(self.compiled(self.torch.ones(2, 8, device=self.device)).sum().item())

    def managed(self):
        """Allocate managed memory, which a checkpoint does not take."""
        cuda, where = ctypes.CDLL(LIBCUDA), ctypes.c_uint64()
        return cuda.cuMemAllocManaged(ctypes.byref(where), ctypes.c_size_t(2**20), 1)

    def forked(self):
        """Start a loader's workers as forks of this process, and keep them."""
        data = self.torch.utils.data
        there = data.TensorDataset(self.torch.arange(8))
        self.loader = iter(data.DataLoader(there, num_workers=2, persistent_workers=True))
        return len(next(self.loader)[0])

    def check(self):
        """Say whether everything is as it was."""
        self.note("same_values", lambda: self.sum() == self.total)
        self.note("graph", self.replay)
        self.note("compiled", self.run)
        return self.told


def main(device, gigabytes, by, case):
    """Be the process that is parked: answer orders until the parent ends it."""
    work = Work(device, gigabytes, case)
    mine = Checkpoint(os.getpid()) if by == "self" else None
    print(json.dumps(work.told), flush=True)
    for line in sys.stdin:
        word = line.strip()
        orders = {"park": mine and mine.park, "back": mine and mine.bring_back, "check": work.check}
        print(json.dumps(orders[word]()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
