"""What a real GPU and its driver do, each fact as one line of JSON: part of `make test-gpu`.

Nothing here is a gate: a fact that cannot be had says why, in its line.  Each part runs in a
process of its own with a time limit, for it may hang in the driver or crash.  Run by
tools/test_gpu.py, or

    python3 tools/gpu_facts.py [PART ...] [--seconds 500] [--sizes 1,10,40]

with a Python that has torch.  `--device cpu` rehearses the parts' own code without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Part -> the most seconds that it may take.
PARTS = {
    "machine": 30,
    "fields": 40,
    "readings": 90,
    "first_kernel": 120,
    "park_self": 180,
    "park_parent": 180,
    "park_refused": 90,
    "placements": 150,
}
#: A matrix product that keeps a device busy, and what each kind of process does with it.
BUSY = "a = (a @ a).clamp(0, 1)"
KINDS = {
    "busy": BUSY,
    "quiet": f"{BUSY}; sync(); time.sleep(1)",
    "idle": "time.sleep(1)",
}
#: Cells of a notebook that runs the same on a GPU and on the CPU.
CELLS = (
    "import torch, torch.nn as nn, torch.nn.functional as F\n"
    "torch.manual_seed(0); X = torch.randn(64, 8); y = (X.sum(1) > 0).long()\n"
    "seen, losses = [], []",
    "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    "model = nn.Linear(8, 2).to(device); X, y = X.to(device), y.to(device)\n"
    "opt = torch.optim.Adam(model.parameters())",
    "for _ in range(3):\n"
    "    opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step()\n"
    "    losses.append(loss.item())",
    "seen.append((losses[:], [p.detach().cpu().tolist() for p in model.parameters()]))",
    "for _ in range(3):\n"
    "    opt.zero_grad(); loss = F.cross_entropy(model(X), y); loss.backward(); opt.step()\n"
    "    losses.append(loss.item())\n"
    "seen.append((losses[:], [p.detach().cpu().tolist() for p in model.parameters()]))",
)


def main():
    """Run the parts that were named, or all; return 0, whatever they found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=500, help="for all parts together")
    parser.add_argument("--sizes", default="1,10,40", help="gigabytes to park")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--here", action="store_true", help="in this very process")
    known = parser.parse_args()
    if known.here:
        sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
        for part in known.parts:
            globals()[part](known)
        return 0
    if known.device == "cuda" and not Path("/dev/nvidiactl").exists():
        say("machine", error="no NVIDIA driver on this machine")
        return 0
    until = time.monotonic() + known.seconds
    for part in known.parts or PARTS:
        left = min(PARTS[part], until - time.monotonic())
        if left < 5:
            say(part, skipped="no time left")
            continue
        separately(part, known, left)
    return 0


def separately(part, known, seconds):
    """Run a part in a process of its own; whatever happens to it is a line."""
    command = [sys.executable, __file__, part, "--here"]
    command += ["--device", known.device, "--sizes", known.sizes]
    process = subprocess.Popen(
        command, cwd=str(ROOT), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, told = process.communicate(timeout=seconds)
        if process.returncode or "Traceback" in told:  # its own, or that of a process of its
            say(part, error=told.strip()[-2000:], status=process.returncode)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # the part's own children, too
        _, told = process.communicate()
        say(part, error="not done within %d s" % seconds, told=told.strip()[-1000:])


def say(fact, **found):
    """Write one fact."""
    print(json.dumps({"fact": fact, **found}, default=repr), flush=True)


def attempt(function, *arguments):
    """Return what a function gives, or its error's text."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - a fact, too
        return "%s: %s" % (type(error).__name__, error)


def machine(_known):
    """What this is: driver, devices, rights."""
    status = Path("/proc/self/status").read_text()
    rights = [line for line in status.splitlines() if line.startswith(("CapEff", "Seccomp:"))]
    say("machine", kernel=os.uname().release, rights=rights, user=os.getuid())
    wanted = "name,uuid,driver_version,compute_cap,mig.mode.current,memory.total,persistence_mode"
    say("machine.nvidia-smi", devices=smi("--query-gpu=" + wanted))
    import torch

    say("machine.torch", torch=torch.__version__, cuda=torch.version.cuda)


def smi(*arguments):
    """Return nvidia-smi's rows, or its error."""
    command = ["nvidia-smi", *arguments, "--format=csv,noheader,nounits"]
    found = attempt(subprocess.check_output, command)
    if isinstance(found, str):
        return found
    return [line.split(", ") for line in found.decode(errors="replace").splitlines()]


def fields(_known):
    """Every question that gpulease asks NVML, with the raw answer or its error's name."""
    import pynvml

    from gpulease.gpus import driver
    from gpulease.gpus.reading import Meter

    driver.ask(pynvml, "nvmlInit")
    for index in range(driver.ask(pynvml, "nvmlDeviceGetCount")):
        handle = driver.ask(pynvml, "nvmlDeviceGetHandleByIndex", index)
        for name, arguments in QUESTIONS.items():
            found = attempt(driver.ask, pynvml, "nvmlDeviceGet" + name, handle, *arguments)
            say("fields." + name, device=index, answer=plain(found))
        say("fields.gpm", device=index, possible=attempt(Meter.possible, pynvml, handle))


QUESTIONS = {
    **dict.fromkeys(("UUID", "Name", "MemoryInfo", "UtilizationRates", "PowerUsage"), ()),
    **dict.fromkeys(("EccMode", "CudaComputeCapability", "MigMode", "RemappedRows"), ()),
    **dict.fromkeys(("ComputeRunningProcesses", "GraphicsRunningProcesses"), ()),
    **dict.fromkeys(("SupportedEventTypes", "MaxMigDeviceCount", "PersistenceMode"), ()),
    "Samples": (1, 0),
    "ProcessUtilization": (0,),
    "TotalEccErrors": (1, 0),
    "AccountingMode": (),
}


def plain(found):
    """Return an answer of NVML's in JSON's types: structures by their members, long lists cut."""
    if isinstance(found, (list, tuple)):
        return [plain(each) for each in found[-8:]]
    names = [name for name, *_ in getattr(found, "_fields_", ())] or vars_of(found)
    if names:
        return {name: plain(getattr(found, name)) for name in names}
    return found if isinstance(found, (int, float, str, type(None))) else repr(found)


def vars_of(found):
    """Return the names of an object's own members."""
    return list(vars(found)) if hasattr(found, "__dict__") else []


def readings(known):
    """gpulease's reading beside nvidia-smi's, for a busy, a quiet and an idle process."""
    from gpulease.gpus.nvml import NVMLProbe

    probe = NVMLProbe()
    infos = probe.inventory()
    say("readings.inventory", devices=[plain(each) for each in infos], problem=probe.problem)
    for kind in KINDS:
        with working(kind, known.device) as process:
            probe.sample()
            time.sleep(5)
            say(
                "readings." + kind,
                pid=process.pid,
                ours=[plain(each) for each in probe.sample()],
                smi=smi("--query-gpu=utilization.gpu,memory.used,power.draw"),
                apps=smi("--query-compute-apps=pid,used_memory"),
            )
    time.sleep(2)
    say("readings.none", ours=[plain(each) for each in probe.sample()])
    probe.close()


class working:  # noqa: N801 - a context manager
    """A process that does one of ``KINDS`` for as long as the block lasts."""

    def __init__(self, kind, device):
        sync = "torch.cuda.synchronize" if device == "cuda" else "int"
        self.source = (
            "import time, torch\nsync = %s\na = torch.rand(4096, 4096, device='%s'); sync()\n"
            "print('ready', flush=True)\nwhile True: %s" % (sync, device, KINDS[kind])
        )

    def __enter__(self):
        command = [sys.executable, "-c", self.source]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        return self.process

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()


def opened(known):
    """Return a home kernel's side without devices and how to give it a companion with them."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from tests.transfer.kinds import open_pair
    from tests.transfer.pair import Companion

    class WithDevices(Companion):
        def __init__(self, keys, settings=None):
            super().__init__(keys, settings)
            shown = "None" if known.device == "cuda" else "''"
            source = "import os; os.environ.pop('CUDA_VISIBLE_DEVICES', %s); del os" % shown
            self.ask({"op": "run", "source": source, "count": 0})
            self.hear()

    import tests.transfer.pair as pairs

    pairs.Companion = WithDevices
    return open_pair({"reply_wait": 60})


def first_kernel(known):
    """From a GPU cell's start to the end of the first CUDA kernel, with and without torch there."""
    kernel = "torch.ones(1, device='%s').sum().item()" % known.device
    began = time.monotonic()
    with opened(known) as pair:
        found = {"companion": time.monotonic() - began}
        for name, source in (
            ("import_torch", "import torch"),
            ("first_kernel", kernel),
            ("next_kernel", kernel),
        ):
            before = time.monotonic()
            pair.gpu(source)
            found[name] = time.monotonic() - before
    say("first_kernel", seconds={name: round(each, 3) for name, each in found.items()})


def placements(known):
    """A torch notebook in every placement of its cells, against one process on the CPU."""
    from itertools import product

    from tests.transfer.kinds import empty
    from tests.transfer.kinds import plain as one_process

    until = time.monotonic() + PARTS["placements"] - 30
    expected = one_process(CELLS)
    apart, errors, done = 0.0, {}, 0
    with opened(known) as pair:
        for places in product((False, True), repeat=len(CELLS)):
            if time.monotonic() > until:
                break
            done += 1
            try:
                sys.modules["__main__"] = pair.main
                empty(pair)
                for source, away in zip(CELLS, places, strict=True):
                    (pair.gpu if away else pair.home)(source)
                pair.home("seen")
                apart = max(apart, difference(pair.ns["seen"], expected))
            except Exception as error:  # noqa: BLE001 - a fact, too
                errors["".join("gh"[not each] for each in places)] = str(error)[-300:]
                pair.restart()
    say("placements", tried=done, of=2 ** len(CELLS), errors=errors, largest_difference=apart)


def difference(one, other):
    """Return the largest difference of two nested lists of numbers."""
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return float("inf")
        return max(map(difference, one, other), default=0.0)
    return abs(one - other)


def park_self(known):
    """Whether a process can park itself, by size."""
    from gpu_parking import parked

    for size in known.sizes.split(","):
        say("park_self", gigabytes=float(size), **attempt_dict(parked, known.device, size, "self"))


def park_parent(known):
    """The same, by its parent."""
    from gpu_parking import parked

    for size in known.sizes.split(","):
        found = attempt_dict(parked, known.device, size, "parent")
        say("park_parent", gigabytes=float(size), **found)


def park_refused(known):
    """What state a refusal leaves: managed memory, forked workers of a loader."""
    from gpu_parking import parked

    for case in ("managed", "forked"):
        for by in ("self", "parent"):
            found = attempt_dict(parked, known.device, "0.1", by, case)
            say("park_refused", case=case, by=by, **found)


def attempt_dict(function, *arguments):
    """Return a function's dictionary, or one with its error."""
    found = attempt(function, *arguments)
    return found if isinstance(found, dict) else {"error": found}


if __name__ == "__main__":
    sys.exit(main())
