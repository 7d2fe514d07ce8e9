"""Builds the cluster's programs from pinned Go modules into a cache outside the clone.

The cache's key is the hash of the go.mod and go.sum of Kubernetes' and kwok's modules, and of its
own module for each other program.  A program appears there under its
own name only when it is whole, so a build that was interrupted resumes where it stopped (Go's own
build cache keeps what was compiled).
"""

import hashlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testcluster.machine import go_program

MODULES = Path(__file__).parent / "go"
KUBERNETES_VERSION = "v1.34.4"
_STAMP = "-X k8s.io/component-base/version."
_VERSION_FLAGS = (
    f"-s -w {_STAMP}gitVersion={KUBERNETES_VERSION} {_STAMP}gitMajor=1 {_STAMP}gitMinor=34"
)
#: Seconds between two lines of progress while one program compiles.
SAY_EVERY = 30.0


@dataclass(frozen=True)
class Program:
    """A program to build: its module's folder, its package and the linker's flags."""

    module: str
    package: str
    flags: str = "-s -w"
    called: str = ""  # where the package is not named like the program

    @property
    def name(self) -> str:
        return self.called or self.package.rsplit("/", 1)[1]


PROGRAMS = (
    *(
        Program("kubernetes", f"k8s.io/kubernetes/cmd/{name}", _VERSION_FLAGS)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
    ),
    Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)
#: What the API server keeps everything in.  A module of its own, so that it and Kubernetes' are
#: built anew apart.
ETCD = Program("etcd", "go.etcd.io/etcd/server/v3", called="etcd")
#: No parts of the cluster, so a new version of one builds nothing else anew: what renders the
#: chart, what the documentation's commands are run with, and a queue that clusters have.
HELM = Program("helm", "helm.sh/helm/v3/cmd/helm")
KUBECTL = Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", _VERSION_FLAGS)
KUEUE = Program("kueue", "sigs.k8s.io/kueue/cmd/kueue")
BESIDE = (HELM, KUBECTL, KUEUE)


#: What kwok does to nodes and pods stands in files of its module.
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
#: What an API server is told of Kueue, in its module.
_KUEUE = ("components/webhook/manifests.yaml", "components/crd/bases/*.yaml")


class BuildFailedError(Exception):
    """A program could not be built; the text holds the compiler's last words."""


class OutOfTimeError(Exception):
    """The caller's time was up before all programs were built; what was compiled is kept."""


def cache_directory() -> Path:
    """Return where everything that outlives a clone is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpulease" / "cluster"


def programs_directory() -> Path:
    """Return the directory of these modules' programs, whether or not they are built."""
    digest = hashlib.sha256(KUBERNETES_VERSION.encode())
    for module in sorted({program.module for program in PROGRAMS}):
        for path in sorted((MODULES / module).glob("go.*")):
            digest.update(path.read_bytes())
    return cache_directory() / digest.hexdigest()[:16] / "bin"


def beside_program(program: Program) -> Path:
    """Return where a program of a module of its own is, whether or not it is built."""
    digest = hashlib.sha256((MODULES / program.module / "go.sum").read_bytes()).hexdigest()
    return cache_directory() / f"{program.name}-{digest[:16]}" / program.name


def missing_programs() -> list[Program]:
    """Return the cluster's parts that are not built yet."""
    return [program for program in (*PROGRAMS, ETCD) if not _place(program).exists()]


def _place(program: Program) -> Path:
    part = program in PROGRAMS
    return programs_directory() / program.name if part else beside_program(program)


def build(limit_seconds: float = math.inf) -> Path:
    """Build what is missing and return the programs' directory.

    Raises BuildFailedError when the compiler fails or Go is missing, OutOfTimeError when the time
    that the caller has is up.
    """
    missing = [(program, _place(program).parent) for program in missing_programs()]
    _build_all(missing, limit_seconds)
    return programs_directory()


def build_beside(program: Program, limit_seconds: float = math.inf) -> Path:
    """Build a program of `BESIDE` unless it is there, and return it.

    Raises as ``build`` does.
    """
    found = beside_program(program)
    if not found.exists():
        _build_all([(program, found.parent)], limit_seconds)
    return found


def _build_all(missing: list[tuple[Program, Path]], limit_seconds: float) -> None:
    go = go_program()
    if missing and go is None:
        raise BuildFailedError("Go is not installed; the cluster's programs are built with it")
    deadline = time.monotonic() + limit_seconds
    for number, (program, directory) in enumerate(missing, 1):
        progress = Progress(f"[cluster build {number}/{len(missing)}] {program.name}")
        directory.mkdir(parents=True, exist_ok=True)
        _build_one(str(go), program, directory, deadline, progress)
        _say(str(progress))


class Progress:
    """What is said of one program while it compiles: its name and the seconds so far."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._started = time.monotonic()

    def __str__(self) -> str:
        return f"{self._head}: {time.monotonic() - self._started:.0f} s"


def _build_one(
    go: str, program: Program, directory: Path, deadline: float, progress: Progress
) -> None:
    unfinished = directory / f".{program.name}.{os.getpid()}"
    command = [go, "build", "-trimpath", "-ldflags", program.flags, "-o", str(unfinished)]
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    try:
        status, output = _run(
            [*command, program.package], MODULES / program.module, environment, deadline, progress
        )
        if status:
            raise BuildFailedError(f"{program.name} did not build:\n{output[-4000:]}")
        if program.name == "kwok":
            stages = [f"kustomize/stage/{name}" for name in _STAGES]
            _write_from_module(go, directory / "kwok.yaml", stages, environment)
        if program == KUEUE:
            given = [f"config/{name}" for name in _KUEUE]
            _write_from_module(go, directory / "kueue.yaml", given, environment)
        unfinished.replace(directory / program.name)
    finally:
        unfinished.unlink(missing_ok=True)


def _run(
    command: list[str], cwd: Path, env: dict[str, str], deadline: float, progress: Progress
) -> tuple[int, str]:
    """Run a compiler; return its status and what it said.  Raises OutOfTimeError."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as compiler:
        while True:
            left = deadline - time.monotonic()
            try:
                output, _ = compiler.communicate(timeout=max(0.0, min(SAY_EVERY, left)))
            except subprocess.TimeoutExpired:
                if left <= SAY_EVERY:
                    compiler.kill()
                    raise OutOfTimeError(
                        f"{progress}: the time is up; run it again, it goes on where it stopped"
                    ) from None
                _say(f"{progress} ...")
            else:
                return compiler.returncode, output


def _write_from_module(
    go: str, target: Path, patterns: Sequence[str], environment: dict[str, str]
) -> None:
    """Write files of the module `sigs.k8s.io/NAME` as one; NAME is the target's stem."""
    name = target.stem
    command = [go, "list", "-m", "-f", "{{.Dir}}", f"sigs.k8s.io/{name}"]
    found = subprocess.run(
        command, cwd=MODULES / name, env=environment, capture_output=True, text=True, check=True
    )
    module = Path(found.stdout.strip())
    paths = [path for pattern in patterns for path in sorted(module.glob(pattern))]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    target.write_text("\n---\n".join(texts), encoding="utf-8")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
